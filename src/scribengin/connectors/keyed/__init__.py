"""Stores that keep, of each id, the row with the highest version: what their sinks have in common. See `contract.KeyedStore`."""
