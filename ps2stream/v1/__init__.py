"""The public API `ps2stream.v1`, generated from protos/ by scripts/protos.sh."""
