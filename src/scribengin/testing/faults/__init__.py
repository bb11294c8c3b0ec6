"""Real runs of real flows, struck at their crash points: what `make faults` does, and a slice of which the tests do.

`flows` (what is run, what must come out) → `drivers` (a `scribengin run` as a process; strikes) and `reader` (a foreign reader beside
it) → `cases` (one schedule of strikes, judged) → `cells` (which are to be covered, and in what order) → `report`.
"""
