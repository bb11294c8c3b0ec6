"""Real runs of real flows, struck at their crash points: what `make faults` does, and a slice of which the tests do.

`flows` (what is run, what must come out) → `drivers` (a `scribengin run` as a process; strikes), `java` (which starts fast) and `reader`
(a foreign reader beside it) → `running` (a flow that lives under strikes) → `ways` (how it is struck) → `lives` (one life, judged) →
`cells` (what is to be covered, in which lives) → `report`.
"""
