"""What a flow remembers: who runs it, what was decided, the counts, the dead letters. Spark-free."""
