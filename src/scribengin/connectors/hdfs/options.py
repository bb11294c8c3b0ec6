"""What a flow can say of `type: hdfs`: what it can of `type: objects`, but for how to get there. Imports neither Arrow nor a client."""

from dataclasses import replace
from functools import partial

from scribengin.connectors.objects import options as objects
from scribengin.core.options import REQUIRED, NodeType, Option

_PLACE = (
    Option(
        "url",
        "text",
        "the NameNode and a folder",
        REQUIRED,
        example="hdfs://namenode:8020/shop/orders",
        by_member=True,
        at_check=partial(objects.at_fault, "hdfs"),
    ),
    Option(
        "settings",
        "map",
        "settings of Hadoop's client, over those that the files in HADOOP_CONF_DIR have",
        {},
        example='{dfs.client.use.datanode.hostname: "true"}',
        pace=True,
    ),
)
_VISIBLE = Option(
    "visible",
    "choice",
    "`listing`: files get their names when their Batch is published; `manifest`: for readers that go by the manifests",
    "listing",
    ("listing", "manifest"),
)


def _as_here(type_: NodeType, doc: str) -> NodeType:
    others = type_.options[len(objects.PLACE) :]
    options = (*_PLACE, *(_VISIBLE if option.name == "visible" else option for option in others))
    return replace(type_, type="hdfs", doc=doc, options=options)


SOURCE = _as_here(
    objects.SOURCE,
    "Reads the files below a folder of HDFS, those that arrive while it runs too. Each is read once, in the order of their names.",
)
SINK = _as_here(
    objects.SINK,
    "Writes files to HDFS, each record once: a file has its name when all of its Batch is decided, and never half its content.",
)
