"""Outside places: one folder a system, one contract for all, a catalog that loads them when they are asked for."""
