"""Real runs of real flows, struck at their crash points: what `make faults` does, and a slice of which the tests do.

`flows` (what is run, what must come out) → `drivers` (a `scribengin run` as a process; strikes), `java` (which starts fast) and `reader`
(a foreign reader beside it) → `running` (a flow that lives under strikes) → `ways` (how it is struck) → `lives` (one life, judged) →
`cells` (what is to be covered, in which lives) → `report`.

Over Kafka the same: `topics` (filled and read) → `kafka_flows` (the flows, with topics at their ends), `brokers` (that lives share)
and `workers` (with which Spark speculates) → `kafka_ways` (brokers and states that go, what is slow).
"""
