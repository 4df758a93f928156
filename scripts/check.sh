#!/bin/sh
# All static checks, with the tools in $1. Beside them the kernels are compiled, and the modules that
# tests import, so that no test has to wait for that and no two processes do it.
set -eu

bin=${1:-.venv/bin}
cd "$(dirname "$0")/.."
{ "$bin/python" -m ps2stream.cluster.warm && "$bin/python" -m ps2stream.cluster.warm gi2-flat; } &
warm=$!
"$bin/python" -m pytest --collect-only -qq tests >/dev/null 2>&1 & # whose errors tests will tell
code=0
sh scripts/lint.sh "$bin" || code=$?
wait "$warm" || code=1
exit "$code"
