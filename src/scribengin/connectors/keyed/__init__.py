"""Stores that keep, for each id, the row with the highest version: the common parts of their sinks. See `contract.KeyedStore`."""
