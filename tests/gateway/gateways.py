"""Gateways in the process of a test: a channel in memory, a directory in memory, and what agents send."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2

from scribengin.core.errors import Unreachable
from scribengin.gateway.directory import AgentTokens, KeptReport, TokenHolder
from scribengin.gateway.server import GatewayApp
from scribengin.gateway.serving import GatewayListen, GatewayServer
from scribengin.plan.agent_lanes import AgentLane
from scribengin.wire.frames import FrameHead, FrameOrigin, encode_frame, find_frames, payload_of
from scribengin.wire.protocol import AgentConfig, AgentReport, LaneConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.connectors.agents.contract import AgentKey, Arrival

LANE = "web.access"


@dataclass
class StoreInMemory:
    """A channel that several gateways share."""

    arrivals: list[Arrival] = field(default_factory=list)
    committed: dict[AgentKey, int] = field(default_factory=dict)
    fault: str = ""
    """why it cannot be written"""
    after_append: str = ""
    """an append stores, and then fails with this"""
    gate: threading.Event = field(default_factory=threading.Event)
    """appends wait for it"""
    appends: int = 0
    closed: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    def next_of(self, key: AgentKey) -> int:
        return max([each.next for each in self.arrivals if (each.agent, each.incarnation) == key], default=0)

    def records(self, *, once: bool = False) -> list[bytes]:
        """All records, in the order in which they are stored. `once`: as the source reads them, by their numbers."""
        found, taken = [], dict[Any, int]()
        for arrival in self.arrivals:
            key = (arrival.agent, arrival.incarnation)
            for frame in find_frames(arrival.frames):
                assert frame.head is not None
                pieces = payload_of(arrival.frames, frame).split(frame.head.mark)[: frame.head.count]
                new = pieces[max(0, taken.get(key, 0) - frame.head.sequence) :] if once else pieces
                if once:
                    assert frame.head.sequence <= taken.get(key, 0), "a gap"
                found += new
                taken[key] = max(taken.get(key, 0), frame.head.next)
        return found


class MemoryChannel:
    """The writing end of one gateway. It sees what others stored only when it reads the positions."""

    def __init__(self, store: StoreInMemory) -> None:
        self._store = store

    def append(self, arrivals: Sequence[Arrival]) -> None:
        assert self._store.gate.wait(60)
        if self._store.fault:
            raise Unreachable(self._store.fault)
        self._store.arrivals += arrivals
        self._store.appends += 1
        if self._store.after_append:
            raise Unreachable(self._store.after_append)

    def stored(self) -> Mapping[AgentKey, int]:
        keys = {(each.agent, each.incarnation) for each in self._store.arrivals}
        return {key: self._store.next_of(key) for key in keys}

    def committed(self) -> Mapping[AgentKey, int]:
        return dict(self._store.committed)

    def waiting_bytes(self) -> int:
        committed = self._store.committed
        return sum(len(each.frames) for each in self._store.arrivals if each.next > committed.get((each.agent, each.incarnation), 0))

    def close(self) -> None:
        self._store.closed += 1


def lane_of(**more: Any) -> AgentLane:
    given = {
        "input": "http",
        "compression": "none",
        **{name: more.pop(name) for name in list(more) if name in LaneConfig.__struct_fields__},
    }
    config = LaneConfig(flow="web", source="access", **given)
    fields: dict[str, Any] = {"group": "web", "gateways": "", "channel": {"kind": "memory"}, "readers": (), "capacity_bytes": 2**40}
    return AgentLane(config, **fields | more)


@dataclass
class DirectoryInMemory:
    """An AgentDirectory whose answers a test sets. Without `tokens` none is required."""

    known: dict[str, AgentLane] = field(default_factory=lambda: {LANE: lane_of()})
    tokens: AgentTokens | None = None
    reports: dict[str, AgentReport] = field(default_factory=dict)

    def config(self, agent: str, group: str) -> AgentConfig:
        return AgentConfig(revision="r1", lanes={name: lane.config for name, lane in self.known.items() if lane.group == group})

    def report(self, report: AgentReport) -> None:
        self.reports[report.agent] = report

    def lanes(self) -> Mapping[str, AgentLane]:
        return self.known

    def allows(self, token: str, agent: str) -> bool:
        return self.tokens is None or self.tokens.allows(token, agent)

    def holder(self, token: str) -> TokenHolder | None:
        return TokenHolder("client", admin=True) if self.tokens is None else self.tokens.holder(token)

    def agents(self) -> list[KeptReport]:
        return [KeptReport(each, time.time()) for each in self.reports.values()]


@dataclass
class RunningGateway:
    """A gateway, and a client of it."""

    server: GatewayServer
    http: httpx2.Client
    app: GatewayApp

    def frames(self, body: bytes, *, agent: str = "web1", incarnation: str = "i1", query: str = "", **headers: str) -> httpx2.Response:
        own = {"Scribengin-Agent": agent, "Scribengin-Incarnation": incarnation, "Scribengin-Committed": "0"}
        own |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(f"/edge/v1/lanes/{LANE}/frames{query}", content=body, headers=own)

    def records(self, body: bytes, content_type: str = "application/x-ndjson", query: str = "", **headers: str) -> httpx2.Response:
        own = {"content-type": content_type} | {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(f"/edge/v1/lanes/{LANE}/records{query}", content=body, headers=own)


@contextmanager
def gateway(
    store: StoreInMemory,
    directory: DirectoryInMemory | None = None,
    listen: GatewayListen | None = None,
    name: str = "g1",
    **client: Any,
) -> Iterator[RunningGateway]:
    app = GatewayApp(directory or DirectoryInMemory(), lambda _name, _lane: MemoryChannel(store), name=name)
    with (
        GatewayServer(app, listen or GatewayListen()) as server,
        httpx2.Client(base_url=server.url, timeout=60, trust_env=False, **client) as http,
    ):
        yield RunningGateway(server, http, app)


def frame(sequence: int, *records: str, **more: Any) -> bytes:
    """A frame of these records."""
    payload = "".join(f"{record}\n" for record in records).encode()
    return encode_frame(FrameHead("records", "none", sequence, len(records), 0, 1, origin=FrameOrigin(file="f"), **more), payload)
