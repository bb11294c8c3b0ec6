"""Tiers, properties of edges, channels and groups."""

from __future__ import annotations

from scribengin.spec.problem_entry import ORDERS, ProblemEntry

_CHAIN = ORDERS + (
    "steps:\n"
    "  big: {from: orders, filter: amount > 100}\n"
    "  mine: {from: big, filter: id > 1}\n"
    "sinks:\n"
    "  kept: {from: mine, type: console}\n"
)
_CUT = _CHAIN + "tiers:\n  near: {steps: [big]}\n  far: {steps: [mine]}\n"
_UNION = ORDERS + (
    "steps:\n"
    "  big: {from: orders, filter: amount > 100}\n"
    "  mine: {from: orders, filter: id > 1}\n"
    "  both: {from: [big, mine]}\n"
    "sinks:\n"
    "  kept: {from: both, type: console}\n"
)

CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "tier-empty",
        "A tier without work",
        "Its `steps` are empty, or only static sources, which each tier reads itself.",
        "Add node ids to its `steps`, or take the tier out.",
        _CUT + "  more: {steps: []}\n",
        slot="file",
        fix=("  more: {steps: []}\n", ""),
    ),
    ProblemEntry(
        "tier-node-unknown",
        "A tier names an unknown node",
        "`steps` of a tier are ids of sources, steps and sinks of the flow; for a route, the id of the whole step.",
        "Write the id of a node; ids are exact.",
        _CUT + "  more: {steps: [keep]}\n",
        slot="file",
        fix=("[keep]", "[kept]"),
    ),
    ProblemEntry(
        "tier-twice",
        "A node in two tiers",
        "A node runs in one tier.",
        "Take it out of one of the two.",
        _CUT + "  more: {steps: [mine]}\n",
        slot="file",
        fix=("more: {steps: [mine]}", "more: {steps: [kept]}"),
    ),
    ProblemEntry(
        "tier-agents",
        "A tier of agents without a source for them",
        "Agents run the sources of a tier with `agents`: those with `type: agents`.",
        "Write `type: agents` at the source that they are to read, or take the tier out.",
        _CHAIN + "tiers:\n  edge: {agents: web}\n",
        slot="file",
        fix=("tiers:\n  edge: {agents: web}\n", ""),
    ),
    ProblemEntry(
        "tier-name",
        "A tier with a reserved name",
        "The state of a tier is in a folder of its name, beside `main` (a flow without tiers) and `channels`.",
        "Give the tier another name.",
        _CHAIN + "tiers:\n  main: {steps: [big]}\n  far: {steps: [mine]}\n",
        slot="file",
        fix=("main:", "near:"),
    ),
    ProblemEntry(
        "spark-setting",
        "A setting that Spark does not have, or that a tier cannot set",
        "`resources: spark` takes settings of the Spark session. Not allowed are cores, memory and locations, which have their own "
        "keys, and settings "
        "on which the results or exactly-once delivery depend.",
        "Take it out, or use `cores`, `memory` and `executors`.",
        _CUT.replace("{steps: [big]}", "{steps: [big], resources: {spark: {spark.sql.ansi.enabled: false}}}"),
        slot="file",
        fix=("spark.sql.ansi.enabled: false", "spark.sql.shuffle.partitions: 4"),
    ),
    ProblemEntry(
        "tier-unclear",
        "A node whose tier is ambiguous",
        "A node that no tier names belongs to the tier of its input; here the inputs are in several tiers, or in none.",
        "Add the node to the `steps` of a tier.",
        _UNION + "tiers:\n  near: {steps: [big]}\n  far: {steps: [mine]}\n",
        slot="file",
        fix=("far: {steps: [mine]}", "far: {steps: [mine]}\n  end: {steps: [both]}"),
    ),
    ProblemEntry(
        "tier-cycle",
        "A circular dependency of tiers",
        "The output of a tier returns to it through other tiers: each would wait for the other, and no acknowledgement would ever "
        "complete.",
        "Move the nodes on the way back to a tier of their own, or both ends of one edge to one tier.",
        _CHAIN + "tiers:\n  near: {steps: [big, kept]}\n  far: {steps: [mine]}\n",
        slot="file",
        fix=("[big, kept]", "[big]"),
    ),
    ProblemEntry(
        "together-cut",
        "Sinks that commit together in two tiers",
        "Sinks with the same `together` are one query, and a query runs in one tier.",
        "Move them to one tier, or take `together` out.",
        ORDERS + "sinks:\n"
        "  a: {from: orders, type: files, path: out/a, format: json, together: both}\n"
        "  b: {from: orders, type: files, path: out/b, format: json, together: both}\n"
        "tiers:\n  near: {steps: [a]}\n  far: {steps: [b]}\n",
        slot="file",
        fix=("near: {steps: [a]}\n  far: {steps: [b]}", "near: {steps: [a, b]}"),
    ),
    ProblemEntry(
        "group-unknown",
        "An unknown group",
        "A tier, an edge or a sink names a group that `groups` does not have.",
        "Write the id of an existing group, or add the group.",
        _CHAIN + "tiers:\n  near: {steps: [big, mine], group: hosts}\n",
        slot="file",
        fix=("group: hosts}", "group: hosts}\ngroups:\n  hosts: {members: [{at: host1}]}"),
    ),
    ProblemEntry(
        "group-host",
        "A member of a tier's group that is not a host",
        "The `group` of a tier names hosts: each `at` is the `--name` of a `scribengin server node`, or the name of its machine. Paths and "
        "addresses of brokers are data locations.",
        "Write names of hosts; put data locations in a separate group.",
        _CHAIN + "tiers:\n  near: {steps: [big, mine], group: hosts}\ngroups:\n  hosts: {members: [{at: /mnt/a}]}\n",
        slot="file",
        fix=("/mnt/a", "host1"),
    ),
    ProblemEntry(
        "group-sink",
        "A sink that cannot go to a group",
        "The Batches of a sink with `to` go to one of several members, each a complete sink with a claim of its own. This type, or a "
        "mode of "
        "it, could not keep its delivery guarantee there; the message gives the reason.",
        "Write the mode that the message names, take `to` out, or use a sink that supports groups; see "
        "[which sinks can go to a group](groups.md#which-sinks-can-go-to-a-group).",
        _CHAIN.replace("type: console", "type: delta, path: kept, mode: upsert, key: [id], to: disks")
        + "groups:\n  disks: {members: [{at: /mnt/a}, {at: /mnt/b}]}\n",
        slot="file",
        fix=("mode: upsert, key: [id]", "mode: append"),
    ),
    ProblemEntry(
        "group-option",
        "An option that the members of the group set",
        "The sink goes to a group, whose members set this option with their `at`. The value of the sink itself has no effect.",
        "Take the option out, or take `to` out.",
        _CHAIN.replace("type: console", "type: kafka, topic: kept, format: json, bootstrap: 'b0:9092', to: wan")
        + "groups:\n  wan: {members: [{at: 'b1:9092'}, {at: 'b2:9092'}]}\n",
        slot="file",
        fix=(" bootstrap: 'b0:9092',", ""),
        severity="warning",
    ),
    ProblemEntry(
        "group-place",
        "A member whose `at` does not fit its sink",
        "`at` of a member is the value of an option of the sink, such as `bootstrap` of Kafka or `server` of a "
        "database, so it must have the form of that option.",
        "Write it as the message says; put folders, brokers and databases in separate groups.",
        _CHAIN.replace("type: console", "type: kafka, topic: kept, format: json, to: wan") + "groups:\n  wan: {members: [{at: /mnt/a}]}\n",
        slot="file",
        fix=("/mnt/a", "'b1:9092'"),
    ),
    ProblemEntry(
        "member-unknown",
        "A member that its group does not have",
        "`to: group.member` names one of the group's members; members without a name are m1, m2, … in the order of the list.",
        "Write one of its members.",
        _CHAIN.replace("type: console", "type: files, path: kept, format: json, to: hosts.m3")
        + "groups:\n  hosts: {members: [{at: host1}, {at: host2}]}\n",
        slot="file",
        fix=("hosts.m3", "hosts.m2"),
    ),
    ProblemEntry(
        "edge-unknown",
        "An edge that does not exist",
        "`a -> b` sets properties of an edge of the flow: b must read a, or the branch `a`.",
        "Write the two ends of an edge as they are in `from:`.",
        _CUT + 'edges:\n  "orders -> mine": {compression: zstd}\n',
        slot="file",
        fix=("orders -> mine", "big -> mine"),
    ),
    ProblemEntry(
        "edge-uncut",
        "Properties of an edge inside one tier",
        "Both ends are in one tier, so the edge has no channel.",
        "Take the edge out, or move one of its ends to another tier.",
        _CUT + 'edges:\n  "mine -> kept": {compression: zstd}\n',
        slot="file",
        fix=("mine -> kept", "big -> mine"),
    ),
    ProblemEntry(
        "edge-from-source",
        "Properties of an edge from a source",
        "Each tier that needs a source, or a static source, reads it itself, so there is no channel. A source that a tier names is "
        "read only by that "
        "tier, which sends its rows to the other tiers.",
        "Take the edge out, or add the source to the `steps` of a tier.",
        _CUT + 'edges:\n  "orders -> big": {compression: zstd}\n',
        slot="file",
        fix=("orders -> big", "big -> mine"),
    ),
    ProblemEntry(
        "edges-differ",
        "One channel with different properties",
        "Edges from one node into one tier share a channel, and all writers of a topic or folder must pack and encrypt in the same way.",
        "Write the same properties for all of them.",
        ORDERS + "steps:\n"
        "  big: {from: orders, filter: amount > 100}\n"
        "sinks:\n"
        "  a: {from: big, type: console}\n"
        "  b: {from: big, type: files, path: out, format: json}\n"
        "tiers:\n  near: {steps: [big]}\n  far: {steps: [a, b]}\n"
        'edges:\n  "big -> a": {compression: zstd}\n  "big -> b": {compression: gzip}\n',
        slot="file",
        fix=("compression: gzip", "compression: zstd"),
    ),
    ProblemEntry(
        "keyring",
        "A keyring that others can read, or whose last line is incomplete",
        "Anyone with one of its keys can read and write the rows of the edge. A line without a line feed is not used yet.",
        "Allow only the owner to read and write it (chmod 600), and end each line with a line feed.",
        "",
        severity="warning",
    ),
    ProblemEntry(
        "group-durability",
        "An edge to a group that may drop rows or store them locally",
        "A Batch that was decided for a member of a group waits for that member; its rows cannot be dropped or stored elsewhere.",
        "Write `durability: end_to_end` for that edge, or take `to` out.",
        _CUT + 'edges:\n  "big -> mine": {to: hosts, durability: best_effort}\ngroups:\n  hosts: {members: [{at: a}, {at: b}]}\n',
        slot="file",
        fix=(", durability: best_effort", ""),
    ),
    ProblemEntry(
        "channel-shared",
        "Two channels in one topic or folder",
        "A topic or folder contains the output of one node, or the inputs of one union. Otherwise readers would read rows of another "
        "channel.",
        "Give each channel its own topic or folder.",
        _CUT.replace("type: console", "type: files, path: out, format: json") + 'edges:\n  "big -> mine": {channel: {path: out}}\n',
        slot="file",
        fix=("channel: {path: out}", "channel: {path: between}"),
    ),
    ProblemEntry(
        "channel-cluster",
        "A channel in Kafka without brokers",
        "The channel of an edge is in Kafka, but its brokers are not known: no node of the flow has `bootstrap`, or the nodes use "
        "several clusters.",
        "Write `channel: {type: kafka, bootstrap: …}` for the edge or under `defaults: {edge: …}`.",
        _CUT + 'edges:\n  "big -> mine": {channel: kafka}\n',
        slot="file",
        fix=("channel: kafka", "channel: {type: kafka, bootstrap: 'broker1:9092'}"),
    ),
    ProblemEntry(
        "edge-key-type",
        "An ordering key of an unsuitable type",
        "Rows with the same key of `ordering: key` keep their order; fractions, times and nested values cannot be keys.",
        "Order by a STRING, BINARY or whole-number column; a select step can compute one.",
        _CUT + 'edges:\n  "big -> mine": {ordering: key, key: [amount]}\n',
        slot="file",
        fix=("key: [amount]", "key: [id]"),
    ),
    ProblemEntry(
        "workers-alone",
        "Several workers for work that cannot be shared",
        "Workers of a tier read parts of one Batch. State needs all rows of a key in one worker, and a static source is read and "
        "counted by "
        "one worker.",
        "Move the steps without state to a tier of their own, and set `workers` for that tier.",
        _CUT.replace("mine: {from: big, filter: id > 1}", "mine: {from: big, dedupe: {key: [id]}}").replace(
            "far: {steps: [mine]}", "far: {steps: [mine], workers: 3}"
        ),
        slot="file",
        fix=("far: {steps: [mine], workers: 3}", "far: {steps: [mine]}"),
    ),
    ProblemEntry(
        "workers-most",
        "More workers than a tier can have",
        "All workers of a tier wait for the slowest one at the end of each Batch, so many workers gain little.",
        "Give each worker more cores, with `resources: {cores: 4}`, or write a smaller number.",
        _CUT.replace("far: {steps: [mine]}", "far: {steps: [mine], workers: 100}"),
        slot="file",
        fix=("workers: 100", "workers: 10"),
    ),
)
