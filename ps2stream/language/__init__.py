"""The query language and text analysis: expressions, tokens, term hashes."""
