"""S3-TM's learning of the worker of each word, from a sample of publications (algorithms.md 2)."""
