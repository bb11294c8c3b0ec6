"""Real servers as child processes, for demos and tests: Kafka and ZooKeeper, from packages."""
