"""The workers: queries in memory behind the `Index` port, and the matching of objects."""
