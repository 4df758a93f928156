#!/bin/sh
# Looks for the programs that tests start, and installs those that are missing: as root, on Debian.
# Where one stays missing, tests are skipped; in CI (CI=true) that is an error.
set -eu

venv=${1:-.venv}
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:$PWD/$venv/prometheus/usr/bin

# Program, package of Debian, what is skipped without it. Debian's Go is too old.
tools="
java default-jre-headless tests of Spark
initdb postgresql tests of PostgreSQL
mvn maven tests against Kafka, which Maven fetches
mosquitto mosquitto tests against MQTT
ip iproute2 hosts with networks of their own
chromium chromium tests in a browser
npx npm the linter of protos/, the client in JavaScript
openssl openssl the certificates of docs/cluster.md
promtool prometheus what a Prometheus server judges
go - the client in Go, the chart by KubeRay's code (1.25 or newer: https://go.dev/doc/install)
"

say() { printf '== %s\n' "$*"; }

has() {
    case $1 in
        java) # the module that Spark needs, of 17 or newer
            "${JAVA_HOME:+$JAVA_HOME/bin/}java" --list-modules 2>/dev/null |
                grep -q '^jdk.incubator.vector@\(1[7-9]\|[2-9]\)' ;;
        initdb) command -v initdb || ls /usr/lib/postgresql/*/bin/initdb ;;
        *) command -v "$1" ;;
    esac >/dev/null 2>&1
}

missing() { # of the tools, those that are not here
    printf '%s' "$tools" | while read -r program package purpose; do
        [ -z "$program" ] || has "$program" || echo "$program $package $purpose"
    done
}

install_packages() {
    policy=/usr/sbin/policy-rc.d # no server that a package brings should start by itself
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    fi
    clusters=/etc/postgresql-common/createcluster.conf
    if [ ! -e "$clusters" ]; then
        mkdir -p "${clusters%/*}" && echo "create_main_cluster = false" >"$clusters"
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

unpack_prometheus() { # installed, it would start with the machine
    folder=$(mktemp -d)
    chmod 755 "$folder"
    (cd "$folder" && apt-get download -qq -o APT::Sandbox::User=root prometheus) &&
        dpkg-deb -x "$folder"/prometheus_*.deb "$venv/prometheus"
    rm -rf "$folder"
}

packages=$(missing | awk '$2 != "-" { print $2 }')
if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing what tests start:" $packages
    apt-get update -qq || true
    case $packages in *prometheus*) unpack_prometheus || true ;; esac
    packages=$(printf '%s\n' "$packages" | grep -v prometheus || true)
    # shellcheck disable=SC2086
    [ -z "$packages" ] || (install_packages $packages) || true
fi
left=$(missing)
[ -n "$left" ] || exit 0
printf '%s\n' "$left" | while read -r program package purpose; do
    [ "$package" = - ] || purpose="$purpose (Debian: apt-get install $package)"
    say "$program is missing, so tests are skipped: $purpose"
done
[ "${CI:-}" != true ] || { echo "setup: in CI no test may be skipped" >&2; exit 1; }
