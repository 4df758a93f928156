"""The common part of the experiments of S3-TM: posts as words, tries, and what nodes have to do."""
