"""What masters, workers and people share: small records, elections and leases. On ZooKeeper, with an in-memory twin."""
