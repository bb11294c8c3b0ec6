"""Plans as Spark queries: the only package that imports pyspark."""
