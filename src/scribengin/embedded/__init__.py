"""Real servers as child processes, for demos and tests: databases, message brokers and object stores, from packages and jars."""
