#!/bin/sh
# Create the virtual environment $1 and install the pinned packages into it.
set -eu

venv=${1:-.venv}
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

python=
for candidate in ${PYTHON:-} python3.11 python3 python3.12 python3.13 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "Python 3.11 or newer is needed; found $(python3 --version 2>&1 || echo none). \
On Debian 12: apt-get install python3.11 python3.11-venv"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package="python$version-venv"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $package, which carries Python's venv module"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"
    else
        fail "Python's venv module is missing; install it first (Debian: apt-get install $package)"
    fi
fi

# Spark, which plans, needs Java 17 with the module jdk.incubator.vector; nothing else does.
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
has_java() {
    "$java" --list-modules 2>/dev/null | grep -q '^jdk.incubator.vector@\(1[7-9]\|[2-9]\)'
}
install_java() { # Debian 12 has 17, Debian 13 has 21
    apt-get update -qq
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "$package" && return
    done
}
if ! has_java && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing Java, which Spark needs"
    install_java || true
fi
has_java || say "Java 17 or newer is missing: ps2stream plan and its tests need it \
(Debian: apt-get install openjdk-17-jre-headless)"

# The tests of the ledger and logs of a cluster start a PostgreSQL of their own.
has_postgres() {
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}
if ! has_postgres && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing PostgreSQL, which tests start"
    config=/etc/postgresql-common/createcluster.conf
    if [ ! -e "$config" ]; then # no server of the machine's own
        mkdir -p "${config%/*}" && echo "create_main_cluster = false" >"$config"
    fi
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends postgresql || true
fi
has_postgres || say "PostgreSQL is missing: tests marked postgres are skipped \
(Debian: apt-get install postgresql)"

# The tests of connectors start a Kafka broker, which Maven fetches, and an MQTT broker.
if ! command -v mvn >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing Maven, which fetches the Kafka broker of tests"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends maven || true
fi
command -v mvn >/dev/null || say "Maven is missing: tests against Kafka are skipped \
(Debian: apt-get install maven)"
mosquitto=$(PATH="$PATH:/usr/sbin" command -v mosquitto || true)
if [ -z "$mosquitto" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing Mosquitto, which tests start"
    (
        policy=/usr/sbin/policy-rc.d # nor should a broker of the machine's own start
        if [ ! -e "$policy" ]; then
            trap 'rm -f "$policy"' EXIT
            printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
        fi
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends mosquitto
    ) || true
    mosquitto=$(PATH="$PATH:/usr/sbin" command -v mosquitto || true)
fi
[ -n "$mosquitto" ] || say "Mosquitto is missing: tests against MQTT are skipped \
(Debian: apt-get install mosquitto)"

# The tests of several hosts make network namespaces; without, they use one network.
if ! command -v ip >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing iproute2, with which tests make hosts"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends iproute2 || true
fi

# The tests of the live map drive a browser.
if ! command -v chromium >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing Chromium, which tests drive"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends chromium || true
fi
command -v chromium >/dev/null || say "Chromium is missing: tests marked browser are skipped \
(Debian: apt-get install chromium)"

# KubeRay's schema comes as a Go module; Debian's Go is too old for it.
command -v go >/dev/null || say "Go 1.25 or newer is missing: the chart is not held against \
KubeRay's schema (https://go.dev/doc/install)"

say "creating $venv with $("$python" --version)"
rm -f "$venv/.ready"
"$python" -m venv "$venv"
say "installing the packages pinned in requirements.txt"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.txt
# Tests have a Prometheus server judge what is made for it; as a package it would start by itself.
has_prometheus() {
    command -v promtool >/dev/null || [ -x "$venv/prometheus/usr/bin/promtool" ]
}
if ! has_prometheus && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "unpacking Prometheus, which tests start, into $venv/prometheus"
    apt-get update -qq && (
        folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && chmod 755 "$folder" &&
            (cd "$folder" && apt-get download -qq prometheus) &&
            dpkg-deb -x "$folder"/prometheus_*.deb "$venv/prometheus"
    ) || true
fi
has_prometheus || say "Prometheus is missing: tests that need it are skipped \
(Debian: apt-get install prometheus)"
say "installing ps2stream itself"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --editable .
touch "$venv/.ready"
say "ready: $venv/bin/ps2stream --help"
