"""The keys of `tiers`, `edges`, `groups` and `defaults.edge`, declared in the same way as in `keys`."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from scribengin.spec.key import Key, Section
from scribengin.spec.model import ChannelKind, Codec, Durability, Ordering, Standby

TO = Key("to", "group", "the destination: a group, or one of its members", "wan.second")
TRACE = Key("trace", "float", "the fraction of records to trace; dead letters are always traced", "0.01", default="0", low=0, high=1)

CHANNEL = Section(
    "channel",
    "Where the rows of an edge are stored between two tiers. `channel: kafka` is short for `channel: {type: kafka}`.",
    (
        Key(
            "type",
            "choice",
            "Kafka topics, or a folder",
            "kafka",
            choices=get_args(ChannelKind),
            default="`kafka` with `topic` or `bootstrap`, `folder` with `path`; otherwise the kind that the flow's nodes use",
        ),
        Key("topic", "text", "kafka: the topic", "tweets-hot", default="`scribengin-FLOW-NODE-TIER`"),
        Key(
            "path",
            "text",
            "folder: its path, relative to the flow file's folder",
            "hand-over/hot",
            default="a folder inside the state folder",
        ),
        Key(
            "bootstrap",
            "text",
            "kafka: bootstrap brokers, separated by commas",
            '"broker1:9092"',
            default="the value of the flow's Kafka nodes",
        ),
        Key(
            "config",
            "secrets",
            "kafka: further settings of the client; secrets as `${secret:env/NAME}`",
            "{security.protocol: SSL}",
        ),
        Key(
            "partitions",
            "int",
            "the number of parts that are read at the same time",
            "4",
            default="the cores of the tier that reads, or 4",
            low=1,
        ),
        Key(
            "replication", "int", "kafka: the replication factor", "3", default="three, or the number of brokers if there are fewer", low=1
        ),
    ),
    filled=True,
)
ENCRYPTION = Section(
    "encryption",
    "Encrypts each record batch (pack) with AES-GCM. Keys are 16, 24 or 32 bytes in BASE64. A pack names its key, so keys can change "
    "while the flow runs. "
    "`encryption: none` turns off the encryption set in `defaults.edge`.",
    (
        Key("keyring", "text", "a file with one line `ID BASE64` for each key; the key of the last line encrypts", "secrets/channel.keys"),
        Key("keys", "secrets", "id → key, instead of a file", '{k1: "${secret:env/K1}"}'),
        Key("use", "text", "the id of the key that encrypts; required if `keys` has several", "k1"),
    ),
    filled=True,
)
PACK = Section(
    "pack",
    "How many rows are sent together, as one pack.",
    (
        Key("rows", "int", "the maximum number of rows", "1000", default="16384", low=1),
        Key("bytes", "bytes", "the maximum number of bytes before compression", "256KiB", default="768KiB", low=1),
        Key("linger", "duration", "the maximum time a Batch waits for rows to fill a pack", "50ms", default="0s"),
    ),
    filled=True,
)
LIMIT = Section(
    "limit",
    "A rate limit.",
    (Key("rows", "int", "rows a second", "5000", low=1), Key("bytes", "bytes", "bytes a second", "10MiB", low=1)),
    filled=True,
)
DEPTH = Section(
    "depth",
    "A limit on the unread rows in the channel. Keys that are left out set no limit.",
    (
        Key("rows", "int", "the number of unread rows", "100000", low=1),
        Key("bytes", "bytes", "their bytes", "1GiB", low=1),
        Key("age", "duration", "the age of the oldest unread row", "5m", low=0.001),
    ),
    filled=True,
)
SOURCE_DEPTH = Section(
    "source depth",
    "A limit on the unread rows at the source. Keys that are left out set no limit.",
    (
        Key("rows", "int", "the number of unread rows, if the source can count them", "100000", low=1),
        Key("bytes", "bytes", "their bytes", "1GiB", low=1),
        Key("age", "duration", "the age of the oldest unread row", "5m", low=0.001),
    ),
    filled=True,
)
WATERS = (
    Key(
        "high_water",
        "section",
        "back-pressure threshold: above it, flows that write the data of this source are throttled; only on a control plane",
        "{bytes: 1GiB, age: 5m}",
        section=SOURCE_DEPTH,
    ),
    Key("low_water", "section", "below it, they are no longer throttled", "{age: 1m}", default="half of high_water", section=SOURCE_DEPTH),
    Key("capacity", "section", "at this limit, they pause", "{age: 1h}", default="twice high_water", section=SOURCE_DEPTH),
)
"""the back-pressure thresholds of a source"""
EDGE = Section(
    "edge",
    "Properties of an edge between two tiers: `NODE -> READER`, or `route.branch -> READER`.",
    (
        Key(
            "channel",
            "word_or_section",
            "where its rows are stored between the tiers",
            "kafka",
            choices=get_args(ChannelKind),
            section=CHANNEL,
        ),
        Key("compression", "choice", "of each pack", "zstd", choices=get_args(Codec), default="none"),
        Key(
            "encryption",
            "word_or_section",
            "of each pack",
            "{keyring: secrets/channel.keys}",
            choices=("none",),
            default="none",
            section=ENCRYPTION,
        ),
        Key("pack", "section", "how many rows are sent together, as one pack", "{rows: 1000, bytes: 256KiB, linger: 50ms}", section=PACK),
        Key("ordering", "choice", "`key`: rows with the same key keep their order", "key", choices=get_args(Ordering), default="none"),
        Key("key", "columns", "the columns of the ordering key", "[user]"),
        Key("retention", "duration", "the minimum time the channel keeps rows that its readers have read", "7d", default="7d", low=1),
        Key("limit", "section", "a rate limit", "{rows: 5000, bytes: 10MiB}", section=LIMIT),
        Key(
            "high_water",
            "section",
            "back-pressure threshold: above it, the writing tier is throttled",
            "{rows: 100000, bytes: 1GiB, age: 5m}",
            default="10000000 rows or 4GiB",
            section=DEPTH,
        ),
        Key(
            "low_water",
            "section",
            "below it, the writing tier is no longer throttled",
            "{rows: 50000}",
            default="half of high_water",
            section=DEPTH,
        ),
        Key(
            "capacity",
            "section",
            "at this limit, the writing tier pauses between two Batches",
            "{rows: 1000000, bytes: 10GiB, age: 1h}",
            default="20000000 rows or 8GiB",
            section=DEPTH,
        ),
        Key(
            "durability",
            "choice",
            "`end_to_end`: every row arrives; `store_on_failure`: rows are stored locally while the channel cannot be written; "
            "`best_effort`: rows are dropped and counted while the channel cannot be written",
            "end_to_end",
            choices=get_args(Durability),
            default="end_to_end",
        ),
        Key("spill", "bytes", "the maximum size of the rows that `store_on_failure` stores locally", "1GiB", default="1GiB", low=1),
        TO,
    ),
    filled=True,
)
_ONE_PLACE = "names a single location, and `defaults` apply to every edge"
DEFAULT_CHANNEL = replace(
    CHANNEL,
    keys=tuple(key for key in CHANNEL.keys if key.name not in ("topic", "path")),
    misplaced=(("topic", _ONE_PLACE), ("path", _ONE_PLACE)),
)
DEFAULT_EDGE = replace(
    EDGE,
    keys=tuple(replace(key, section=DEFAULT_CHANNEL) if key.name == "channel" else key for key in EDGE.keys if key is not TO),
    misplaced=(("to", _ONE_PLACE),),
)
"""`defaults.edge`: default values for all edges"""

MOST_WORKERS = 16
"""the most workers of a tier: each further worker saves less of a Batch's time, and all of them wait for the slowest"""
STANDBY = Key(
    "standby",
    "choice",
    "only on a control plane: `warm` keeps a standby worker with a running Spark, which takes over in seconds and needs the memory a "
    "second time",
    "warm",
    choices=get_args(Standby),
    default="none",
)
RESOURCES = Section(
    "resources",
    "The resources of a tier.",
    (
        Key("cores", "int", "cores", "2", low=1),
        Key("memory", "bytes", "memory", "2GiB", low=1),
        Key(
            "executors",
            "int",
            "only with Spark on a cluster: the number of executors, each with these cores and this memory",
            "4",
            default="`min` of its `autoscale`, or 1",
            low=1,
        ),
        Key(
            "spark",
            "settings",
            "settings of its Spark session, if the tier runs in a process of its own; no secrets",
            "{spark.sql.shuffle.partitions: 8}",
        ),
        replace(STANDBY, default="the value in `defaults`"),
    ),
    filled=True,
)
AUTOSCALE = Section(
    "autoscale",
    "How the number of executors of a tier follows its lag, on a control plane with Spark on a cluster.",
    (
        Key(
            "lag",
            "duration",
            "the lag above which the tier gets more executors: the age of the oldest unread row, or the time to read the unread rows",
            "1m",
            required=True,
            low=1,
        ),
        Key("max", "int", "the largest number of executors", "8", required=True, low=1),
        Key("min", "int", "the smallest number of executors", "2", default="1", low=1),
        Key(
            "mode",
            "choice",
            "`advise`: `status` shows which number it would choose, and why; `act`: the leading master changes it, as `scale` does",
            "act",
            choices=("advise", "act"),
            default="advise",
        ),
    ),
)
TIER = Section(
    "tier",
    "A part of the flow that runs separately. A node that no tier names belongs to the tier of its input.",
    (
        Key("steps", "inputs", "the ids of its sources, steps and sinks; required, except with `agents`", "[known, hot]"),
        Key(
            "agents",
            "name",
            "the group of agents that run this tier: its `steps` are then sources with `type: agents`, by default all that no other tier "
            "with `agents` names",
            "web",
        ),
        Key("gateways", "name", "with `agents`: the group of gateways that they use", "dmz", default="all gateways"),
        Key("group", "name", "the group of hosts to run on", "hosts_a"),
        Key(
            "workers",
            "int_or_word",
            "only on a control plane, for steps without state: how many workers read its sources in parallel, each a part of every Batch; "
            "`each`: one worker on each host of its group",
            "3",
            choices=("each",),
            default="1",
            low=1,
        ),
        Key("resources", "section", "its cores, memory and Spark settings", "{cores: 2, memory: 2GiB}", section=RESOURCES),
        Key(
            "autoscale",
            "section",
            "only on a control plane with Spark on a cluster: the number of executors follows the lag",
            "{lag: 1m, min: 1, max: 8}",
            default="the number stays",
            section=AUTOSCALE,
        ),
        Key(
            "trigger",
            "duration",
            "the time from the start of a Batch to the start of the next one",
            "1s",
            default="the value in `defaults`",
        ),
        Key(
            "acknowledge",
            "choice",
            "when a row that is kept in the state of a step counts as processed: when it is in the `checkpoint`, or when it has left "
            "the `state`",
            "state",
            choices=("checkpoint", "state"),
            default="checkpoint",
        ),
    ),
)
MEMBER = Section(
    "member",
    "One of several interchangeable members.",
    (
        Key("at", "text", "a host, or the address of an endpoint", "host1", required=True),
        Key("name", "name", "its name in `to: group.member`", "second", default="`m1`, `m2`, … in the order of the list"),
        Key(
            "cost", "float", "the member with the lowest cost is used first; members of equal cost take turns", "2", default="1", low=0.001
        ),
    ),
)
GROUP = Section(
    "group",
    "Hosts or endpoints that are interchangeable.",
    (Key("members", "sections", "its members", "[{at: host1}, {at: host2, cost: 2}]", required=True, section=MEMBER),),
)

PARTS: tuple[Section, ...] = (CHANNEL, DEFAULT_CHANNEL, ENCRYPTION, PACK, LIMIT, DEPTH, RESOURCES, AUTOSCALE, MEMBER)
"""the sections inside the others"""
SECTIONS: tuple[Section, ...] = (TIER, EDGE, DEFAULT_EDGE, GROUP, *PARTS)
