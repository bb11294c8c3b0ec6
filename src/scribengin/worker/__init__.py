"""A worker: the process that runs one tier of a flow, under a lease, as the registry says it is wanted."""
