#!/bin/sh
# Installs ps2stream with the extra $2 into the virtual environment $1, as requirements.txt pins it.
set -eu

venv=${1:-.venv}
extra=${2:-dev}
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

find_python() {
    for python in ${PYTHON:-} python3.11 python3 python3.12 python3.13 python; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return
    done
    fail "Python 3.11 or newer is needed; found $(python3 --version 2>&1 || echo none). \
On Debian 12: apt-get install python3.11 python3.11-venv"
}

need_venv_module() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null && return
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        fail "Python's venv module is missing; install it first (Debian: apt-get install $package)"
    say "installing $package, without which there is no virtual environment"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"
}

install() { # ps2stream with extras; Python compiles a module when it is first imported
    PIP_CONSTRAINT=requirements.txt "$venv/bin/python" -m pip install --quiet \
        --disable-pip-version-check --no-compile --editable "$1"
}

if ! "$venv/bin/python" -c '' 2>/dev/null; then
    find_python
    need_venv_module
    say "creating $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi
if [ "$extra" = server ]; then
    say "installing what a service needs into $venv (860 MB with Ray)"
    install '.[local]'
    say "installing Ray, and compiling the kernels meanwhile (less than a minute)"
    "$venv/bin/python" -m ps2stream.cluster.warm &
    kernels=$!
    install '.[server]'
    wait "$kernels"
else
    say "installing the packages of [$extra] into $venv"
    # Two halves of [dev] at a time, as pip unpacks on one core; the next step brings what is left.
    for half in 0 1; do
        awk "!/^#/ && NR % 2 == $half" requirements.txt >"$venv/half-$half.txt"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
            --no-deps --requirement "$venv/half-$half.txt" || true &
    done
    wait
    install ".[$extra]"
fi
