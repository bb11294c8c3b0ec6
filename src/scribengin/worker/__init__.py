"""A worker: the process that runs one tier of a flow, under a lease, in the tier's desired state from the registry."""
