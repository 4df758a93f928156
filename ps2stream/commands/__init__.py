"""The commands of the `ps2stream` program, one module each."""
