"""The keys of `tiers`, `edges`, `groups` and `defaults.edge`, declared as those of `keys` are."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from scribengin.spec.edge_model import ChannelKind, Codec, Durability, Ordering
from scribengin.spec.key import Key, Section
from scribengin.spec.model import Standby

TO = Key("to", "group", "where it goes: a group, or one of its members", "wan.second")
TRACE = Key("trace", "float", "the share of records whose way is kept; that of dead letters always is", "0.01", default="0", low=0, high=1)

CHANNEL = Section(
    "channel",
    "Where the rows of a cut edge lie between two tiers. `channel: kafka` is short for `channel: {type: kafka}`.",
    (
        Key(
            "type",
            "choice",
            "topics of Kafka, or a folder",
            "kafka",
            choices=get_args(ChannelKind),
            default="`kafka` with `topic` or `bootstrap`, `folder` with `path`; else what the flow's nodes use",
        ),
        Key("topic", "text", "kafka: the topic", "tweets-hot", default="`scribengin-FLOW-NODE-TIER`"),
        Key("path", "text", "folder: its path, from the flow file's folder", "hand-over/hot", default="one in the state folder"),
        Key("bootstrap", "text", "kafka: brokers to ask first, with commas", '"broker1:9092"', default="that of the flow's Kafka nodes"),
        Key(
            "config",
            "secrets",
            "kafka: further settings of the client; secrets as `${secret:env/NAME}`",
            "{security.protocol: SSL}",
        ),
        Key(
            "partitions",
            "int",
            "in how many parts it is read at the same time",
            "4",
            default="the cores of the tier that reads, or 4",
            low=1,
        ),
        Key("replication", "int", "kafka: brokers that hold it", "3", default="three, or as many as there are", low=1),
    ),
    filled=True,
)
ENCRYPTION = Section(
    "encryption",
    "AES-GCM over each pack. Keys are BASE64 of 16, 24 or 32 bytes; a pack names its key, so that keys change without a stop. "
    "`encryption: none` takes back what `defaults.edge` says.",
    (
        Key("keyring", "text", "a file with a line `ID BASE64` for each key; its last line is the one that writes", "secrets/channel.keys"),
        Key("keys", "secrets", "id → key, in place of a file", '{k1: "${secret:env/K1}"}'),
        Key("use", "text", "the id of the key that writes, where `keys` are several", "k1"),
    ),
    filled=True,
)
PACK = Section(
    "pack",
    "How many rows travel as one.",
    (
        Key("rows", "int", "at most so many rows", "1000", default="16384", low=1),
        Key("bytes", "bytes", "at most so many bytes, before they are compressed", "256KiB", default="768KiB", low=1),
        Key("linger", "duration", "how long a Batch waits for rows to fill a pack", "50ms", default="0s"),
    ),
    filled=True,
)
LIMIT = Section(
    "limit",
    "How much may pass in a second.",
    (Key("rows", "int", "rows a second", "5000", low=1), Key("bytes", "bytes", "bytes a second", "10MiB", low=1)),
    filled=True,
)
DEPTH = Section(
    "depth",
    "How much waits in the channel. What is not named is not looked at.",
    (
        Key("rows", "int", "rows that no reader has taken", "100000", low=1),
        Key("bytes", "bytes", "their bytes", "1GiB", low=1),
        Key("age", "duration", "how long ago the oldest of them was written", "5m", low=0.001),
    ),
    filled=True,
)
SOURCE_DEPTH = Section(
    "source depth",
    "How much waits at the source. What is not named is not looked at.",
    (
        Key("rows", "int", "rows that are not read yet; of a source that can count them", "100000", low=1),
        Key("bytes", "bytes", "their bytes", "1GiB", low=1),
        Key("age", "duration", "how old the oldest of them is", "5m", low=0.001),
    ),
    filled=True,
)
WATERS = (
    Key(
        "high_water",
        "section",
        "how much may wait here before flows that write what this source reads are slowed, where flows are managed",
        "{bytes: 1GiB, age: 5m}",
        section=SOURCE_DEPTH,
    ),
    Key("low_water", "section", "below which they go on as before", "{age: 1m}", default="half of high_water", section=SOURCE_DEPTH),
    Key("capacity", "section", "where they pause", "{age: 1h}", default="twice high_water", section=SOURCE_DEPTH),
)
"""of a source"""
EDGE = Section(
    "edge",
    "Properties of an arrow that is cut: `NODE -> READER`, or `route.branch -> READER`.",
    (
        Key("channel", "word_or_section", "where its rows lie between the tiers", "kafka", choices=get_args(ChannelKind), section=CHANNEL),
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
        Key("pack", "section", "how many rows travel as one", "{rows: 1000, bytes: 256KiB, linger: 50ms}", section=PACK),
        Key("ordering", "choice", "`key`: rows of one key stay in their order", "key", choices=get_args(Ordering), default="none"),
        Key("key", "columns", "the columns of that key", "[user]"),
        Key("retention", "duration", "how long the channel keeps at least what its readers have read", "7d", default="7d", low=1),
        Key("limit", "section", "how much may pass in a second", "{rows: 5000, bytes: 10MiB}", section=LIMIT),
        Key(
            "high_water",
            "section",
            "from where the feeder slows down",
            "{rows: 100000, bytes: 1GiB, age: 5m}",
            default="10000000 rows or 4GiB",
            section=DEPTH,
        ),
        Key("low_water", "section", "below which it goes on as before", "{rows: 50000}", default="half of high_water", section=DEPTH),
        Key(
            "capacity",
            "section",
            "where it stops between two Batches",
            "{rows: 1000000, bytes: 10GiB, age: 1h}",
            default="20000000 rows or 8GiB",
            section=DEPTH,
        ),
        Key(
            "durability",
            "choice",
            "`end_to_end`: each row arrives; `store_on_failure`: rows are kept aside while the channel cannot be written; "
            "`best_effort`: they are dropped then, and counted",
            "end_to_end",
            choices=get_args(Durability),
            default="end_to_end",
        ),
        Key("spill", "bytes", "how much `store_on_failure` keeps aside at most", "1GiB", default="1GiB", low=1),
        TO,
    ),
    filled=True,
)
_ONE_PLACE = "names one place, and `defaults` speak of every edge"
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
"""`defaults.edge`: what holds for every edge that says nothing else"""

MOST_WORKERS = 16
"""of a tier: each more saves less of a Batch's time, and all of them wait for the slowest"""
STANDBY = Key(
    "standby",
    "choice",
    "where flows are managed: `warm` keeps a spare process with Spark up, which takes over in seconds; it costs the memory once more",
    "warm",
    choices=get_args(Standby),
    default="none",
)
RESOURCES = Section(
    "resources",
    "What a tier gets where it runs.",
    (
        Key("cores", "int", "cores", "2", low=1),
        Key("memory", "bytes", "memory", "2GiB", low=1),
        Key("executors", "int", "where Spark runs on a cluster: how many executors, each with these cores and this memory", "4", low=1),
        Key(
            "spark",
            "settings",
            "settings of its Spark session, where it runs in a process of its own; no secrets",
            "{spark.sql.shuffle.partitions: 8}",
        ),
        replace(STANDBY, default="that of `defaults`"),
    ),
    filled=True,
)
TIER = Section(
    "tier",
    "A part of the flow that runs by itself. The nodes that no tier names go where what they read goes.",
    (
        Key("steps", "inputs", "ids of its sources, steps and sinks", "[known, hot]", required=True),
        Key("group", "name", "the group of hosts on which it runs", "hosts_a"),
        Key(
            "workers",
            "int_or_word",
            "where flows are managed: how many workers read its sources side by side, each a part of every Batch; for steps without state. "
            "`each`: one on each host of its group",
            "3",
            choices=("each",),
            default="1",
            low=1,
        ),
        Key("resources", "section", "what it gets there", "{cores: 2, memory: 2GiB}", section=RESOURCES),
        Key("trigger", "duration", "how long after the start of a Batch the next one starts", "1s", default="that of `defaults`"),
        Key(
            "acknowledge",
            "choice",
            "when what a step with state has taken counts as through: once the `checkpoint` holds it, or once it has left the `state`",
            "state",
            choices=("checkpoint", "state"),
            default="checkpoint",
        ),
    ),
)
MEMBER = Section(
    "member",
    "One of several that stand for each other.",
    (
        Key("at", "text", "a host, or the place of an endpoint", "host1", required=True),
        Key("name", "name", "what `to: group.member` calls it", "second", default="`m1`, `m2`, … in their order"),
        Key("cost", "float", "the lowest is taken first, equal ones in turn", "2", default="1", low=0.001),
    ),
)
GROUP = Section(
    "group",
    "Hosts, or endpoints, that stand for each other.",
    (Key("members", "sections", "its members", "[{at: host1}, {at: host2, cost: 2}]", required=True, section=MEMBER),),
)

PARTS: tuple[Section, ...] = (CHANNEL, DEFAULT_CHANNEL, ENCRYPTION, PACK, LIMIT, DEPTH, RESOURCES, MEMBER)
"""The sections inside the others"""
SECTIONS: tuple[Section, ...] = (TIER, EDGE, DEFAULT_EDGE, GROUP, *PARTS)
