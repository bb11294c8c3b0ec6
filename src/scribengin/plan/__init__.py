"""Plans: what will run, as a value that can be printed and compared, without Spark."""
