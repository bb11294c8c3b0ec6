"""Is a flow that is cut the same as the whole one? Random flows, run both ways and compared: `python -m harness.cuts`."""
