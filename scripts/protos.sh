#!/bin/sh
# Generate ps2stream/v1 and docs/reference/api.md from protos/, with pinned tools in a venv of
# their own: code that grpcio-tools 1.76 makes loads on protobuf 6 and on every newer one.
set -eu

cd "$(dirname "$0")/.."
venv=${PS2STREAM_PROTOS_VENV:-build/protos-venv}
tools="grpcio-tools==1.76.0 mypy-protobuf==5.1.0 protobuf==6.33.6"

if [ "$(cat "$venv/.tools" 2>/dev/null)" != "$tools" ]; then
    echo "== installing $tools"
    "${PYTHON:-python3}" -m venv --clear "$venv"
    # shellcheck disable=SC2086
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check $tools
    printf '%s\n' "$tools" >"$venv/.tools"
fi

find ps2stream/v1 -name '*_pb2*' -delete
bin=$(cd "$venv/bin" && pwd)
PATH="$bin:$PATH" "$bin/python" -W ignore -m grpc_tools.protoc -I protos \
    --python_out=. --grpc_python_out=. --mypy_out=quiet:. --mypy_grpc_out=quiet:. \
    protos/ps2stream/v1/*.proto

"$bin/python" -m grpc_tools.protoc -I protos --include_source_info \
    --descriptor_set_out=build/protos.binpb protos/ps2stream/v1/*.proto
"$bin/python" scripts/api_docs.py build/protos.binpb
