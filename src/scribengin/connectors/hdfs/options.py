"""The options of `type: hdfs`: those of `type: objects`, except for the connection. Imports neither Arrow nor a client."""

from dataclasses import replace
from functools import partial

from scribengin.connectors.addresses import HDFS_URL, store_url_fault
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
        at_check=partial(store_url_fault, form=HDFS_URL),
    ),
    Option(
        "settings",
        "map",
        "settings of the Hadoop client; they override the files in HADOOP_CONF_DIR",
        {},
        example='{dfs.client.use.datanode.hostname: "true"}',
        pace=True,
    ),
)
_VISIBLE = Option(
    "visible",
    "choice",
    "`listing`: files get their final names when their Batch is published; `manifest`: for readers that use the manifests",
    "listing",
    ("listing", "manifest"),
)


def _as_here(type_: NodeType, doc: str) -> NodeType:
    others = type_.options[len(objects.PLACE) :]
    options = (*_PLACE, *(_VISIBLE if option.name == "visible" else option for option in others))
    abilities = type_.abilities - {"fills_for_tasks"}
    return replace(type_, type="hdfs", doc=doc, options=options, abilities=abilities, store_url=HDFS_URL)


SOURCE = _as_here(
    objects.SOURCE,
    "Reads the files below a folder of HDFS, including files that arrive while the flow runs. Each file is read once, in name order.",
)
SINK = _as_here(
    objects.SINK,
    (
        "Writes files to HDFS, each record once: a file appears under its final name when its Batch is decided, and never with partial "
        "content."
    ),
)
