#!/bin/sh
# Renew requirements.txt: every package, direct or not, with its exact version.
set -eu

bin=${1:-.venv/bin}
cd "$(dirname "$0")/.."
"$bin/python" -m pip install --quiet --disable-pip-version-check "uv>=0.9,<1"
"$bin/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev \
    --no-emit-index-url --no-header --no-annotate --output-file requirements.txt pyproject.toml
{
    echo "# Pins of pyproject.toml and its extra [dev]; renew with: make lock"
    cat requirements.txt
} >requirements.tmp
mv requirements.tmp requirements.txt
