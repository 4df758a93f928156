#!/bin/sh
# All static checks, with the tools in $1.
set -eu

bin=${1:-.venv/bin}
cd "$(dirname "$0")/.."
bin=$(cd "$bin" && pwd)
PATH=$bin:$PATH
buf=1.75.0

say() { printf '== %s\n' "$*"; }

say "ruff check"
ruff check .
say "ruff format --check"
ruff format --check .
say "mypy --strict"
mypy
say "import-linter"
lint-imports

if command -v npx >/dev/null; then
    say "buf lint"
    (cd protos && npx --yes "@bufbuild/buf@$buf" lint)
else
    say "buf lint SKIPPED: there is no npx here (Debian: apt-get install nodejs npm)"
fi

say "generated code is what protos/ generates"
PYTHON="$bin/python" sh scripts/protos.sh
git diff --exit-code -- ps2stream/v1 docs/reference/api.md
