"""Runs the command `ps2stream` as `python -m ps2stream`."""

from ps2stream.cli import main

if __name__ == "__main__":
    main(prog_name="ps2stream")
