"""What will run, as a value: printable, comparable, free of Spark."""
