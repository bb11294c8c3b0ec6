"""The common parts of sinks into stores that keep, for each id, the row with the highest version. See `contract.KeyedStore`."""
