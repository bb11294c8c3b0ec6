"""The fault campaign: real runs of real flows that are struck at their crash points. `make faults` runs all of it, the tests a part.

`flows` (what is run, and the expected result) → `drivers` (a `scribengin run` process and strikes), `java` (a Java that starts fast) and
`reader` (an independent reader beside it) → `running` (a flow under strikes) → `ways` (the ways to strike) → `lives` (one life and its
result) → `cells` (what must be covered, and in which lives) → `report`.

For Kafka: `topics` (fills and reads topics) → `kafka_flows` (flows with topics at their ends), `brokers` (shared by lives) and `workers`
(on which Spark speculates) → `kafka_ways` (failing brokers, lost states, slow processes).
"""
