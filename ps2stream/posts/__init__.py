"""Posts as users write them: checks, columns, files."""
