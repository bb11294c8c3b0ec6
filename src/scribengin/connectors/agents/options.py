"""The options of `type: agents`: what agents collect, how it travels, and how it is read. Imports neither Spark nor a client."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from scribengin.connectors.addresses import DataLocation
from scribengin.connectors.files.options import CELLS_READ, JSON_OF_MESSAGES, TIME
from scribengin.core.options import REQUIRED, NodeType, Option

METADATA_PARTS = ("agent", "host", "file", "line", "offset", "read_at", "number", "incarnation", "tags")
"""what a column can be taken from instead of the record"""
_INPUTS: Mapping[str, frozenset[str]] = {
    "tail": frozenset({"path", "exclude", "from", "encoding", "multiline", "poll", "follow_links"}),
    "exec": frozenset({"command", "restart", "restart_delay", "stderr", "environment"}),
    "stdin": frozenset(),
    "syslog": frozenset({"listen", "framing", "parse", "zone", "certificate", "key", "client_ca", "insecure"}),
    "http": frozenset({"listen", "token_file", "certificate", "key", "client_ca", "insecure"}),
    "tcp": frozenset({"listen", "certificate", "key", "client_ca", "insecure"}),
    "journal": frozenset({"from", "units", "matches"}),
}
"""input → the options that it has"""
_NEEDED: Mapping[str, str] = {"tail": "path", "exec": "command", "syslog": "listen", "tcp": "listen", "http": "listen"}
INPUT_OPTIONS = frozenset().union(*_INPUTS.values())
"""the options that travel to agents"""
_LISTEN = re.compile(r"(?:(?:udp|tcp|tls)://)?(?:\[[0-9A-Fa-f:]+\]|[^:/\s]*):\d{1,5}\Z")


def input_fault(options: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """(option, what is wrong, remedy) for options that do not fit the input; None if they do."""
    chosen = options["input"]
    needed = _NEEDED.get(chosen)
    if needed is not None and not options[needed]:
        return "input", f"reads from {chosen}, and there is no `{needed}`", f"add {needed}: …"
    defaults = {option.name: option.default for option in SOURCE.options}
    for name in sorted(INPUT_OPTIONS - _INPUTS[chosen]):
        if options[name] != defaults[name]:
            users = ", ".join(each for each, names in _INPUTS.items() if name in names)
            return name, f"has `{name}`, which the input {chosen} does not use", f"take it out; it is for {users}"
    multiline = options["multiline"]
    if multiline and bool(multiline.get("start")) == bool(multiline.get("continue")):
        return "multiline", "has a `multiline` with neither or both of `start` and `continue`", "write one of them"
    if multiline and options["format"] == "csv":
        return "multiline", "reads csv, whose records are lines here", "take `multiline` out, or read format: text"
    return None


def _pattern_fault(text: str) -> tuple[str, str] | None:
    try:
        re.compile(text)
    except re.error as error:
        return f"is not a regular expression: {error}", "change it; it is a regular expression of Python"
    return None


def _listen_fault(text: str) -> tuple[str, str] | None:
    if _LISTEN.match(text):
        return None
    return f"is {text!r}", "write HOST:PORT, such as 127.0.0.1:5170; for syslog udp://, tcp:// or tls:// before it"


def channel_written(options: Mapping[str, Any]) -> Iterator[DataLocation]:
    """The place of the channel: no other flow may use it."""
    channel = options.get("channel") or {}
    if channel.get("topic"):
        cluster = ",".join(sorted(each.strip() for each in str(channel.get("bootstrap") or "").split(",")))
        yield DataLocation("topic", cluster, str(channel["topic"]))


_DURABILITIES = ("end_to_end", "store_on_failure", "best_effort")
CHANNEL = Option(
    "channel",
    "section",
    "where gateways store the records",
    None,
    example="{topic: web-access}",
    keys=(
        Option("type", "choice", "Kafka topics, or a folder that gateways and workers share", "", ("", "kafka", "folder")),
        Option("topic", "text", "kafka: the topic", "", example="web-access"),
        Option("path", "text", "folder: its path, relative to the flow file's folder", "", example="channel/access"),
        Option("bootstrap", "text", "kafka: bootstrap brokers, separated by commas", "", example='"broker1:9092"'),
        Option("partitions", "int", "kafka: number of partitions of a topic that is created", 4, low=1),
        Option("replication", "int", "kafka: number of replicas of a topic that is created", None, low=1),
        Option("retention", "duration", "how long records are kept after they were committed", 7 * 86_400.0, example="7d"),
    ),
)

SOURCE = NodeType(
    type="agents",
    role="source",
    doc="Reads records that agents collect on their hosts and send over gateways, each record once.",
    options=(
        Option("input", "choice", "what an agent reads", REQUIRED, tuple(_INPUTS), example="tail"),
        Option("group", "text", "the group of agents, if no tier with `agents` names it", "", example="web"),
        Option(
            "path",
            "words",
            "tail: patterns of files; `**` stands for any folders, `{host}` and `{agent}` for their names",
            (),
            example='"/var/log/nginx/*.log"',
        ),
        Option("exclude", "words", "tail: patterns of files that are not read", (), example='"*.gz"'),
        Option(
            "from",
            "choice",
            "tail, journal: where what exists at the first start is read from",
            "beginning",
            ("beginning", "end"),
        ),
        Option("encoding", "text", "tail: the character encoding of the files", "utf-8", example="utf-16"),
        Option(
            "multiline",
            "section",
            "tail: several lines form one record",
            None,
            example=r"{start: '^\d{4}-'}",
            keys=(
                Option("start", "text", "a record begins at each line that contains a match", "", check=_pattern_fault),
                Option("continue", "text", "a line that contains a match belongs to the record before it", "", check=_pattern_fault),
                Option("timeout", "duration", "the last record is complete after this time without a line", 1.0, low=0.01),
                Option("lines", "int", "the maximum lines of a record", 500, low=2),
            ),
        ),
        Option("poll", "duration", "tail: how often files are examined", 0.25, low=0.02, pace=True),
        Option("follow_links", "bool", "tail: read files behind symbolic links", True),
        Option("command", "list", "exec: the command with its arguments; its output is read", (), example="[vmstat, '1']"),
        Option("restart", "choice", "exec: when the command is started again", "always", ("always", "on_failure", "never")),
        Option("restart_delay", "duration", "exec: the time before it is started again; it grows with failures", 1.0, low=0.05),
        Option("stderr", "choice", "exec: its error output", "log", ("log", "merge", "separate")),
        Option("environment", "map", "exec: further variables of its environment", {}, example="{LANG: C}"),
        Option("listen", "text", "syslog, tcp, http: the address to listen on", "", example='"udp://[::1]:5514"', check=_listen_fault),
        Option("framing", "choice", "syslog over TCP: what ends a message", "auto", ("auto", "octet", "newline")),
        Option("parse", "bool", "syslog: each record is a JSON object with the fields of the message", True),
        Option("zone", "text", "syslog: the time zone of times without one; by default that of the host", "", example="Europe/Berlin"),
        Option("certificate", "text", "syslog, tcp, http: certificate file on the agent's host", "", example="/etc/agent/tls.crt"),
        Option("key", "text", "syslog, tcp, http: key file on the agent's host", "", example="/etc/agent/tls.key"),
        Option("client_ca", "text", "syslog, tcp, http: clients need a certificate of this authority", "", example="/etc/agent/ca.crt"),
        Option("token_file", "text", "http: file on the agent's host with a token on each line", "", example="/etc/agent/tokens"),
        Option("insecure", "bool", "syslog, tcp, http: listen beyond loopback without TLS or tokens", False),
        Option("units", "list", "journal: the units to read; by default all", (), example="[nginx.service]"),
        Option("matches", "list", "journal: fields that records must have", (), example="[PRIORITY=3]"),
        Option("tags", "map", "texts that travel with each record, beside the tags of the agent", {}, example="{site: berlin}"),
        Option("max_record", "bytes", "a longer record becomes a dead letter with its first 64 KiB", 2**20, low=1024, high=4 * 2**20),
        Option(
            "durability",
            "choice",
            "what an agent does while no gateway takes its records",
            None,
            ("end_to_end", "store_on_failure", "best_effort"),
            adds={"store_on_failure": frozenset({"may_repeat"}), "best_effort": frozenset({"may_lose"})},
        ),
        Option("sync", "text", "when an agent's log is made durable: `each`, a time, or a size", "100ms", example="1MiB", pace=True),
        Option("compression", "choice", "compression of records on their way", None, ("none", "gzip", "zstd", "lz4"), pace=True),
        Option("linger", "duration", "the longest time that a record waits for others at the agent", 0.2, low=0.0, pace=True),
        Option(
            "pack",
            "section",
            "how many records travel together",
            None,
            example="{rows: 1000}",
            pace=True,
            keys=(
                Option("rows", "int", "at most so many records", 16_384, low=1),
                Option(
                    "bytes",
                    "bytes",
                    "at most so many bytes before compression, unless one record has more",
                    2**20,
                    low=4096,
                    high=4 * 2**20,
                ),
            ),
        ),
        Option("spill", "bytes", "the largest size of an agent's log", None, low=2**20, pace=True),
        Option("when_full", "choice", "what an agent does when its log is full", "wait", ("wait", "drop_oldest")),
        Option(
            "limit",
            "section",
            "a rate limit for each agent",
            None,
            example="{rows: 5000}",
            pace=True,
            keys=(Option("rows", "int", "records a second", 0, low=0), Option("bytes", "bytes", "bytes a second", 0, low=0)),
        ),
        CHANNEL,
        Option("config", "map", "kafka: additional settings of the client; secrets as `${secret:env/NAME}`", {}, secret=True, pace=True),
        Option("timeout", "duration", "kafka: how long to wait for brokers", 5.0, low=0.1, pace=True),
        Option(
            "capacity",
            "bytes",
            "stored and not committed bytes above which gateways refuse records for a while",
            8 * 2**30,
            low=1,
            pace=True,
        ),
        Option("format", "choice", "format of the records", REQUIRED, ("json", "csv", "text"), example="json"),
        *CELLS_READ,
        TIME,
        JSON_OF_MESSAGES,
        Option(
            "metadata",
            "columns",
            "columns with the origin of a record; a mapping renames them. `line` counts from 1, `offset` is in bytes, `number` is the "
            "agent's own count, `tags` is MAP<STRING, STRING>",
            {},
            METADATA_PARTS,
            example="[agent, file, line]",
        ),
        Option("max_bytes", "bytes", "maximum size of one Batch, as stored", 256 * 2**20, low=1, pace=True),
        Option("split", "bytes", "size, as stored, that one task reads", 4 * 2**20, low=1, pace=True),
    ),
    abilities=frozenset({"replayable", "bounded", "measures_backlog", "collected", "locates_records"}),
    untyped="records",
    locations=channel_written,
    check=input_fault,
)
