"""Where a flow is cut: tiers, the properties of edges, channels and groups."""

from __future__ import annotations

from scribengin.plan.problem_catalog.orders import ORDERS
from scribengin.spec.problem_entry import ProblemEntry

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
        "A tier that would run nothing",
        "Its `steps` are empty, or only tables, which each tier reads itself.",
        "Name what runs in it, or take it out.",
        _CUT + "  more: {steps: []}\n",
        slot="file",
        fix=("  more: {steps: []}\n", ""),
    ),
    ProblemEntry(
        "tier-node-unknown",
        "A tier names a node that is not there",
        "`steps` of a tier are ids of sources, steps and sinks of the flow; of a route the whole step.",
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
        "tier-name",
        "A tier with a name that is taken",
        "The state of a tier lies in a folder of its name, beside `main` (a flow in one piece) and `channels`.",
        "Give it another name.",
        _CHAIN + "tiers:\n  main: {steps: [big]}\n  far: {steps: [mine]}\n",
        slot="file",
        fix=("main:", "near:"),
    ),
    ProblemEntry(
        "spark-setting",
        "A setting that Spark does not have, or that a tier cannot set",
        "`resources: spark` takes settings of Spark's session, but for cores, memory and places, which are said otherwise, and for those "
        "on which hangs what flows mean, or that each row counts once.",
        "Leave it out, or write `cores`, `memory`, `executors`.",
        _CUT.replace("{steps: [big]}", "{steps: [big], resources: {spark: {spark.sql.ansi.enabled: false}}}"),
        slot="file",
        fix=("spark.sql.ansi.enabled: false", "spark.sql.shuffle.partitions: 4"),
    ),
    ProblemEntry(
        "tier-unclear",
        "A node whose tier cannot be told",
        "Nodes that no tier names go where what they read goes; here that is in several tiers, or nowhere.",
        "Name the node under the `steps` of a tier.",
        _UNION + "tiers:\n  near: {steps: [big]}\n  far: {steps: [mine]}\n",
        slot="file",
        fix=("far: {steps: [mine]}", "far: {steps: [mine]}\n  end: {steps: [both]}"),
    ),
    ProblemEntry(
        "tier-cycle",
        "Tiers that feed each other in a circle",
        "What a tier hands on comes back to it through others: each would wait for the other, and an acknowledgement would never end.",
        "Put what lies on the way back into a tier of its own, or both ends of one arrow into one tier.",
        _CHAIN + "tiers:\n  near: {steps: [big, kept]}\n  far: {steps: [mine]}\n",
        slot="file",
        fix=("[big, kept]", "[big]"),
    ),
    ProblemEntry(
        "together-cut",
        "Sinks that commit together in two tiers",
        "Sinks with the same `together` are one Query, and a Query runs in one tier.",
        "Put them into one tier, or let each commit by itself.",
        ORDERS + "sinks:\n"
        "  a: {from: orders, type: files, path: out/a, format: json, together: both}\n"
        "  b: {from: orders, type: files, path: out/b, format: json, together: both}\n"
        "tiers:\n  near: {steps: [a]}\n  far: {steps: [b]}\n",
        slot="file",
        fix=("near: {steps: [a]}\n  far: {steps: [b]}", "near: {steps: [a, b]}"),
    ),
    ProblemEntry(
        "group-unknown",
        "A group that is not there",
        "A tier, an edge or a sink names a group that `groups` does not have.",
        "Write the id of a group, or add it.",
        _CHAIN + "tiers:\n  near: {steps: [big, mine], group: hosts}\n",
        slot="file",
        fix=("group: hosts}", "group: hosts}\ngroups:\n  hosts: {members: [{at: host1}]}"),
    ),
    ProblemEntry(
        "group-host",
        "A member that cannot be a host, of a group on which a tier runs",
        "The `group` of a tier names hosts: each `at` is the `--name` of a `scribengin node`, or the name of its machine. Paths and "
        "addresses of brokers are places of data.",
        "Write names of hosts; give places of data a group of their own.",
        _CHAIN + "tiers:\n  near: {steps: [big, mine], group: hosts}\ngroups:\n  hosts: {members: [{at: /mnt/a}]}\n",
        slot="file",
        fix=("/mnt/a", "host1"),
    ),
    ProblemEntry(
        "group-sink",
        "A sink that cannot go to a group",
        "The Batches of a sink with `to` go to one of several members, each a whole sink with a claim of its own. This type, or a mode of "
        "it, would not keep its promise there; the message says why.",
        "Write the mode that the message names, take `to` out, or use a sink that can; see "
        "[which sinks can go to a group](tiers.md#which-sinks-can-go-to-a-group).",
        _CHAIN.replace("type: console", "type: delta, path: kept, mode: upsert, key: [id], to: disks")
        + "groups:\n  disks: {members: [{at: /mnt/a}, {at: /mnt/b}]}\n",
        slot="file",
        fix=("mode: upsert, key: [id]", "mode: append"),
    ),
    ProblemEntry(
        "group-option",
        "An option that the members of the group say",
        "A sink goes to a group, whose members say this option by their `at`: what the sink itself says has no effect.",
        "Take the option out, or take `to` out.",
        _CHAIN.replace("type: console", "type: kafka, topic: kept, format: json, bootstrap: 'b0:9092', to: wan")
        + "groups:\n  wan: {members: [{at: 'b1:9092'}, {at: 'b2:9092'}]}\n",
        slot="file",
        fix=(" bootstrap: 'b0:9092',", ""),
        severity="warning",
    ),
    ProblemEntry(
        "group-place",
        "A member whose place does not fit its sink",
        "What `at` of a member says is an option of the sink that goes there, such as the `bootstrap` of Kafka or the `server` of a "
        "database, and so has its form.",
        "Write it as the message says; give folders, brokers and databases groups of their own.",
        _CHAIN.replace("type: console", "type: kafka, topic: kept, format: json, to: wan") + "groups:\n  wan: {members: [{at: /mnt/a}]}\n",
        slot="file",
        fix=("/mnt/a", "'b1:9092'"),
    ),
    ProblemEntry(
        "member-unknown",
        "A member that its group does not have",
        "`to: group.member` names one of the group's members; without a name of their own they are m1, m2, … in their order.",
        "Write one of its members.",
        _CHAIN.replace("type: console", "type: files, path: kept, format: json, to: hosts.m3")
        + "groups:\n  hosts: {members: [{at: host1}, {at: host2}]}\n",
        slot="file",
        fix=("hosts.m3", "hosts.m2"),
    ),
    ProblemEntry(
        "edge-unknown",
        "An edge that is not an arrow",
        "`a -> b` holds properties of an arrow of the flow: b reads a, or the branch `a`.",
        "Write the two ends of an arrow, as they stand in `from:`.",
        _CUT + 'edges:\n  "orders -> mine": {compression: zstd}\n',
        slot="file",
        fix=("orders -> mine", "big -> mine"),
    ),
    ProblemEntry(
        "edge-uncut",
        "Properties of an arrow that is not cut",
        "Both ends lie in one tier: there is no channel that could have them.",
        "Take the edge out, or put one of its ends into another tier.",
        _CUT + 'edges:\n  "mine -> kept": {compression: zstd}\n',
        slot="file",
        fix=("mine -> kept", "big -> mine"),
    ),
    ProblemEntry(
        "edge-from-source",
        "Properties of an arrow from a source",
        "A source, and a table, is read by each tier that needs it, so there is no channel. A source that a tier names is read by that "
        "tier alone, and hands its rows to the others.",
        "Take the edge out, or name the source under the `steps` of a tier.",
        _CUT + 'edges:\n  "orders -> big": {compression: zstd}\n',
        slot="file",
        fix=("orders -> big", "big -> mine"),
    ),
    ProblemEntry(
        "edges-differ",
        "One channel, and edges that say different things of it",
        "Edges from one node into one tier share a channel; who writes into one topic or folder packs and encrypts alike.",
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
        "A keyring that others can read, or whose last line is not whole",
        "Whoever has a key of it can read what goes over the edge, and write there. A line without a line feed is not used yet.",
        "Let its owner alone read and write it (chmod 600), and end each line.",
        "",
        severity="warning",
    ),
    ProblemEntry(
        "group-durability",
        "An edge to a group that may drop rows, or set them aside",
        "What a group does not take waits for the member that its Batch was decided for; nothing of it is dropped, or set aside elsewhere.",
        "Write `durability: end_to_end` at that edge, or give it one channel.",
        _CUT + 'edges:\n  "big -> mine": {to: hosts, durability: best_effort}\ngroups:\n  hosts: {members: [{at: a}, {at: b}]}\n',
        slot="file",
        fix=(", durability: best_effort", ""),
    ),
    ProblemEntry(
        "channel-shared",
        "Two channels in one place",
        "A topic or folder holds what one node hands on, or what comes together in one union; else readers would take what is not theirs.",
        "Give each channel a place of its own.",
        _CUT.replace("type: console", "type: files, path: out, format: json") + 'edges:\n  "big -> mine": {channel: {path: out}}\n',
        slot="file",
        fix=("channel: {path: out}", "channel: {path: between}"),
    ),
    ProblemEntry(
        "channel-cluster",
        "A channel in Kafka without brokers",
        "An edge lies in Kafka, and it is not known where: no node of the flow names brokers, or nodes name those of several clusters.",
        "Write `channel: {type: kafka, bootstrap: …}`, at the edge or under `defaults: {edge: …}`.",
        _CUT + 'edges:\n  "big -> mine": {channel: kafka}\n',
        slot="file",
        fix=("channel: kafka", "channel: {type: kafka, bootstrap: 'broker1:9092'}"),
    ),
    ProblemEntry(
        "edge-key-type",
        "Rows ordered by what has no equals",
        "The key of `ordering: key` says which rows stay in order; fractions, times and nested values cannot be keys.",
        "Order by a STRING, a BINARY or a whole number; a select can make one.",
        _CUT + 'edges:\n  "big -> mine": {ordering: key, key: [amount]}\n',
        slot="file",
        fix=("key: [amount]", "key: [id]"),
    ),
    ProblemEntry(
        "workers-alone",
        "Several workers, and nothing that they could share",
        "Workers of a tier read parts of one Batch. State needs all rows of a key in one place, and a table is read and counted by "
        "one worker.",
        "Put the steps without state into a tier of their own, and give that one the workers.",
        _CUT.replace("mine: {from: big, filter: id > 1}", "mine: {from: big, dedupe: {key: [id]}}").replace(
            "far: {steps: [mine]}", "far: {steps: [mine], workers: 3}"
        ),
        slot="file",
        fix=("far: {steps: [mine], workers: 3}", "far: {steps: [mine]}"),
    ),
    ProblemEntry(
        "workers-most",
        "More workers than a tier can have",
        "All workers of a tier wait for the slowest of them at the end of each Batch: many gain little.",
        "Give each more cores, with `resources: {cores: 4}`, or write a smaller number.",
        _CUT.replace("far: {steps: [mine]}", "far: {steps: [mine], workers: 100}"),
        slot="file",
        fix=("workers: 100", "workers: 10"),
    ),
)
