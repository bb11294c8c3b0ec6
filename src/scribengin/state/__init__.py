"""The stored state of a flow: its lease, decisions, counts and dead letters. Does not need Spark."""
