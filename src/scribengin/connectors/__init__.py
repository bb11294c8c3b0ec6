"""Connectors to external systems: one folder per system, one contract for all, and a catalog that loads a connector when it is first
used."""
