"""What tests share: worlds, makers of rows, servers that they start."""
