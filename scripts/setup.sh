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

install() { # packages, as pinned; Python compiles a module when it is first imported
    PIP_CONSTRAINT=requirements.txt "$venv/bin/python" -m pip install --quiet \
        --disable-pip-version-check --no-compile "$@"
}

packages_of() { # what the extra $1 adds to others of the ps2stream that is installed
    "$venv/bin/python" - "$1" <<'EOF'
import re, sys
from importlib.metadata import requires

ours = re.compile(rf"extra == .{sys.argv[1]}\W")
found = [text for text in requires("ps2stream") or () if ours.search(text)]
print(*(text.partition(";")[0] for text in found if not text.startswith("ps2stream")), sep="\n")
EOF
}

if ! "$venv/bin/python" -c '' 2>/dev/null; then
    find_python
    need_venv_module
    say "creating $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi
if [ "$extra" = server ]; then
    say "installing what a service needs into $venv (860 MB with Ray)"
    install --editable '.[local]'
    say "installing Ray, and compiling the kernels meanwhile (a minute on two idle cores)"
    "$venv/bin/python" -m ps2stream.cluster.warm &
    kernels=$!
    packages_of server >"$venv/server.txt" # ps2stream itself is not built a second time
    install --requirement "$venv/server.txt"
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
    install --editable ".[$extra]"
fi
