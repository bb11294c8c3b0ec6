"""A whole flow in this process, on this machine."""
