"""The registry: small records, elections and leases, shared by masters, workers and operators. On ZooKeeper, with an in-memory twin for
tests."""
