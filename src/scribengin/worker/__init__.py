"""A worker: the process that runs one tier of a flow, under a lease, and follows the tier's desired state in the registry."""
