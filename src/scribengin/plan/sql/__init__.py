"""Spark's SQL, read offline with sqlglot: syntax, names, types, and what keeps state. sqlglot is imported when a flow has SQL."""
