#!/bin/sh
# All static checks, with the tools in $1. Beside them the kernels are compiled, which takes as
# long, so that no test has to wait for that.
set -eu

bin=${1:-.venv/bin}
cd "$(dirname "$0")/.."
"$bin/python" -m ps2stream.cluster.warm &
warm=$!
code=0
sh scripts/lint.sh "$bin" || code=$?
wait "$warm" || code=1
exit "$code"
