"""The messages between agents and gateways, as JSON, and the addresses of a gateway.

    GET  /edge/v1/config?agent=NAME&group=GROUP   AgentConfig; `If-None-Match: REVISION` is answered with 304
    POST /edge/v1/lanes/LANE/frames               frames, in the order of their numbers → FramesAnswer
    POST /edge/v1/report                          AgentReport → ReportAnswer

Each request has `Authorization: Bearer TOKEN`, or a client certificate. Frames come with the headers of `FRAMES_HEADERS`. A gateway answers
200 when the frames are stored; 409 with a FramesAnswer if they do not continue what it knows to be stored: the agent goes on at `stored`;
429 or 503 with `Retry-After`: the agent keeps them; 401 or 403: the token is not, or no longer, valid; 404: no flow here has the lane.

A *lane* is one source of one flow, `FLOW.SOURCE`. Its records are numbered by each agent, from 0, in each *incarnation* of the agent's
write-ahead log.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

PREFIX = "/edge/v1"
FRAMES_TYPE = "application/x-scribengin-frames"
AGENT_HEADER = "Scribengin-Agent"
INCARNATION_HEADER = "Scribengin-Incarnation"
COMMITTED_HEADER = "Scribengin-Committed"
"""the number up to which the agent knows its records to be committed: a reader that has never met the agent starts there"""
FRAMES_HEADERS = (AGENT_HEADER, INCARNATION_HEADER, COMMITTED_HEADER)

HopDurability = Literal["end_to_end", "store_on_failure", "best_effort"]


class GatewayMember(msgspec.Struct, frozen=True):
    """A gateway that the agent may use; lower costs first, equal ones in the order of the list."""

    url: str
    cost: float = 1.0


class LaneConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """One source of one flow, as an agent runs it."""

    flow: str
    source: str
    input: str
    """`tail`, `exec`, `stdin`, `syslog`, `http`, `tcp`, `journal`"""
    version: int = 0
    """the version of the flow"""
    tier: str = "edge"
    options: dict[str, Any] = {}
    """the options of the input, as `scribengin.agent.inputs` declares them"""
    durability: HopDurability = "end_to_end"
    compression: str = "zstd"
    sync: str = "100ms"
    """when the write-ahead log is made durable: `each` record batch, a time (`100ms`), or a size (`1MiB`)"""
    frame_rows: int = 16_384
    frame_bytes: int = 1024 * 1024
    """records are sent together up to these limits, before compression"""
    linger_s: float = 0.2
    """the longest time that a record waits for others"""
    spill_bytes: int = 1024 * 1024 * 1024
    """the largest size of the write-ahead log"""
    on_full: Literal["wait", "drop_oldest"] = "wait"
    limit_rows: float = 0.0
    """rate limit in records a second; 0: none"""
    limit_bytes: float = 0.0
    max_record: int = 1024 * 1024
    """a longer record is not sent: its place and its first bytes become a dead letter"""
    tags: dict[str, str] = {}
    paused: bool = False


class AgentConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent is to do: lane → its configuration, the gateways, how often to report."""

    revision: str = ""
    lanes: dict[str, LaneConfig] = {}
    gateways: list[GatewayMember] = []
    report_s: float = 10.0
    message: str = ""
    """for the agent's log: why it has nothing to do"""


class FramesAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """`stored`: the number up to which the lane's records of this incarnation are in the channel; `committed`: up to which the last tiers
    have committed them; `message` says why frames were refused."""

    stored: int = 0
    committed: int = 0
    message: str = ""


class LaneReport(msgspec.Struct, omit_defaults=True):
    """The state of one lane of an agent."""

    incarnation: str = ""
    state: str = "running"
    """`running`, `waiting` (no gateway takes frames), `full`, `paused`, `failed`, `ended` (a standard input that is closed)"""
    read: int = 0
    """the number of the next record that will be read"""
    stored: int = 0
    committed: int = 0
    waiting_bytes: int = 0
    """bytes in the write-ahead log that are not acknowledged"""
    oldest_ms: int = 0
    """when the oldest record that is not acknowledged was read, in milliseconds since 1970; 0: none"""
    dropped: int = 0
    """records that `best_effort` or `drop_oldest` has dropped"""
    files: int = 0
    version: int = 0
    """the version of the flow that it runs"""
    message: str = ""


class AgentReport(msgspec.Struct, omit_defaults=True):
    """What an agent tells a gateway every few seconds."""

    agent: str
    host: str = ""
    group: str = ""
    release: str = ""
    """the version of Scribengin"""
    since_ms: int = 0
    revision: str = ""
    """of the configuration that it runs"""
    lanes: dict[str, LaneReport] = {}
    message: str = ""


class ReportAnswer(msgspec.Struct, omit_defaults=True):
    """`revision`: of the configuration that the agent should have; `lanes`: lane → the numbers of its present incarnation."""

    revision: str = ""
    lanes: dict[str, FramesAnswer] = {}
