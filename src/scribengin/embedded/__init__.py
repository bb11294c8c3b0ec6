"""Real servers as child processes, for demos and tests: Kafka, ZooKeeper and a Spark cluster, from packages."""
