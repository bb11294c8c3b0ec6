"""The leading master polls peers over their APIs, and records the answers: times by its own clock, servers by the names used here.

A peer is asked only for the state of its flows; each control plane controls its own flows only. If a peer is silent, its last answer stays,
and what flows here have written since is added to its backlog (`watching.backlogs`): a broken link causes delay, but the capacity of the
source is respected.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from scribengin.client.client import Client
from scribengin.client.transport import address_of
from scribengin.control.peers import deletes, peer_state, stored_flows
from scribengin.control.record_validation import again
from scribengin.core.errors import FencedError, Refused, ScribenginError, Unreachable
from scribengin.core.secret import read_secret
from scribengin.core.time_text import moment_text, now_text, parse_time
from scribengin.registry.contract import Conflict, Create, Replace
from scribengin.registry.flow_ends import ExternalPlace, SourceLevel, Waters
from scribengin.registry.peers import Peer, PeerState, RemoteFlow, RemoteSource, remote_name
from scribengin.registry.record_io import put
from scribengin.registry.tree import PEER, PEER_STATE, REMOTE_FLOW

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from scribengin.client.models import AllEnds, EndLevel, EndPlace, FlowEnds, SourceEnds, Waits
    from scribengin.control.workflows import Workflows
    from scribengin.core.secret import Secret
    from scribengin.registry.contract import Registry, Term

_PACE_S, _SILENT_PACE_S = 2.0, 10.0
"""seconds between two requests to a peer: while it answers, and while it is silent"""
_LIST_S = 15.0
"""seconds between two requests for where all flows of a peer read and write"""
_AT_REST_S = 30.0
"""seconds after which an unchanged answer is recorded again"""


class AskPeer(Protocol):
    """Polls peers; each peer is polled by one thread."""

    def __call__(self, name: str, peer: Peer, flows: Collection[str]) -> AllEnds:
        """The state of some flows of a peer.

        Args:
            name: the peer.
            peer: its record.
            flows: its flows; without any: where all of its flows read and write.

        Raises:
            ScribenginError: the peer does not answer.
        """
        ...

    def forget(self, name: str) -> None:
        """Close the connection to the peer."""
        ...


class Peering:
    """Polls peers for the leading master: one thread per peer, so that a silent peer delays no other. `want` is for the master's thread."""

    def __init__(
        self,
        registry: Registry,
        ask: AskPeer,
        workflows: Workflows,
        log: FilteringBoundLogger,
        *,
        waits: Callable[[str], Mapping[str, Waits]] = lambda _flow: {},
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create it without threads; `want` starts them.

        Args:
            registry: where the answers are recorded.
            ask: sends a request to a peer.
            workflows: the workflows of the flows here.
            log: where failures are logged.
            waits: flow of a peer → source → its backlog, including what flows here have written.
            clock: the time in seconds since the epoch.
        """
        self.registry = registry
        self.ask = ask
        self.workflows = workflows
        self.waits = waits
        self.clock = clock
        self._log = log
        self._changed = threading.Condition()
        self._peers: Mapping[str, Peer] = {}
        self._term: Term | None = None
        self._asked: set[str] = set()
        """peers that have a thread"""

    def want(self, peers: Mapping[str, Peer], term: Term) -> None:
        """Set the peers to poll."""
        with self._changed:
            if self._term == term and self._peers == peers:
                return
            self._peers, self._term = dict(peers), term
            for name in peers.keys() - self._asked:
                self._asked.add(name)
                threading.Thread(target=self._run, args=(name,), name=f"peer {name}", daemon=True).start()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop polling; a current request is not waited for."""
        with self._changed:
            self._peers, self._term = {}, None
            self._changed.notify_all()

    def _run(self, name: str) -> None:
        asking, told = Asking(self, name), ""
        while True:
            with self._changed:
                peer, term = self._peers.get(name), self._term
                if peer is None or term is None:
                    self.ask.forget(name)
                    self._asked.discard(name)
                    return
            why = ""
            try:
                why = asking.ask(peer, term)
            except FencedError:
                with self._changed:
                    if self._term is term:
                        self._term = None
                continue
            except (Conflict, Unreachable):
                pass  # the registry does not answer, or the record was changed: the next request writes again
            except Exception:
                if name not in self._peers:  # polling was stopped, and the registry may be closed
                    continue
                self._log.exception("peer", peer=name)  # a bug: it is logged, and the peer is still polled
            if why and why != told:
                self._log.warning("peer does not answer", peer=name, why=why)
            told = why
            with self._changed:
                deadline = time.monotonic() + (_SILENT_PACE_S if why else _PACE_S)
                while self._peers.get(name) == peer and self._term is term and (left := deadline - time.monotonic()) > 0:
                    self._changed.wait(left)


class PeerClients:
    """Reads the peers over their REST APIs."""

    def __init__(self, tokens: Path, certificates: Path | None) -> None:
        """Create it without connections.

        Args:
            tokens: the folder with `PEER.token` for each peer that requires a token.
            certificates: see `Transport`.
        """
        self._tokens = tokens
        self._certificates = certificates
        self._clients: dict[str, tuple[tuple[str, ...], Secret | None, Client]] = {}

    def __call__(self, name: str, peer: Peer, flows: Collection[str]) -> AllEnds:
        """Ask a peer; see `AskPeer`. Raises as `Client.ends`, and as `read_secret`."""
        file = self._tokens / f"{name}.token"
        token = read_secret(file) if file.exists() else None
        known = self._clients.get(name)
        if known is None or known[:2] != (peer.masters, token):
            self.forget(name)
            known = (peer.masters, token, Client(peer.masters, token=token, user="peer", certificates=self._certificates))
            self._clients[name] = known
        try:
            return known[2].ends(flows)
        except Refused as error:
            raise Refused(f"it answered: {error.message}", remedy=error.remedy, code=error.code) from error

    def forget(self, name: str) -> None:
        """Close the connection to the peer."""
        if (known := self._clients.pop(name, None)) is not None:
            known[2].close()


class Asking:
    """The state of polling one peer: which of its flows are connected to flows here is found periodically, their state at each request."""

    def __init__(self, peering: Peering, name: str) -> None:
        self._peering = peering
        self._registry = peering.registry
        self._name = name
        self._met: set[str] = set()
        self._listed = (-inf, Peer(masters=()))
        """when all flows were last requested, and from which peer"""
        self._noted_at = -inf

    def ask(self, peer: Peer, term: Term) -> str:
        """Send a request and record the answer.

        Returns:
            Why the peer did not answer, which is recorded too; an empty text if it did.

        Raises:
            FencedError, Conflict, Unreachable: the registry's.
        """
        state = peer_state(self._registry, self._name)
        began = self._peering.clock()
        try:
            if began - self._listed[0] >= _LIST_S or self._listed[1] != peer:
                self._find(peer, began)
            began = self._peering.clock()
            ends = self._peering.ask(self._name, peer, sorted(self._met)) if self._met else None
        except ScribenginError as error:
            self._listed = (-inf, peer)  # when it answers again, it may be another control plane
            silent = replace(state, silent_since=state.silent_since or moment_text(began), why=error.message)
            noting = [put(self._registry, PEER_STATE(self._name), silent)] if silent != state else []
            noting += self._reckoned(began)
            if noting:
                self._registry.commit(*noting, term=term)
            return error.message
        before = {flow: found.record for flow, found in stored_flows(self._registry, self._name).items()}
        now = dict[str, RemoteFlow]()
        if ends is not None:
            answer = PeerAnswer(self._name, ends.now, began, self._peering.clock(), peer.aliases)
            now = {each.flow: answer.flow(each, before.get(each.flow)) for each in ends.flows if each.flow in self._met}
        writes = [put(self._registry, REMOTE_FLOW(self._name, flow), found) for flow, found in now.items() if before.get(flow) != found]
        gone = deletes(self._registry, [REMOTE_FLOW(self._name, flow).path for flow in before.keys() - now.keys()])
        if writes or gone or state.silent_since or began - self._noted_at >= _AT_REST_S:
            noted = put(self._registry, PEER_STATE(self._name), PeerState(answered_at=moment_text(began)))
            self._registry.commit(noted, *writes, *gone, term=term)
            self._noted_at = began
        return ""

    def _reckoned(self, now: float) -> list[Create | Replace]:
        """The writes that record the flows of the silent peer with their backlog as estimated by flows here: the next leader starts with
        that."""
        writes = list[Create | Replace]()
        for flow, found in stored_flows(self._registry, self._name).items():
            known = self._peering.waits(remote_name(self._name, flow))
            sources = {
                id_: source
                if (there := known.get(id_)) is None or source.looked_at is None
                else _with_waits(source, there, now, reckoned=True)
                for id_, source in found.record.sources.items()
            }
            writes.append(found.replace(replace(found.record, sources=sources)))
        return writes

    def _find(self, peer: Peer, began: float) -> None:
        """Find which of the peer's flows are connected to one here."""
        ends = self._peering.ask(self._name, peer, ())
        answer = PeerAnswer(self._name, ends.now, began, self._peering.clock(), peer.aliases)
        there = {
            remote_name(self._name, each.flow): answer.flow(each, None) for each in ends.flows if REMOTE_FLOW.fits(self._name, each.flow)
        }
        met = self._peering.workflows.meeting({name: flow.outside for name, flow in there.items()})
        ours = [{each.feeding, each.reading} & there.keys() for each in met]
        self._met = {name.partition("/")[2] for names_ in ours if len(names_) == 1 for name in names_}
        self._listed = (began, peer)


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """A peer's answer, converted to the clock here: requested at `began`, received at `ended` by this clock, in seconds since the epoch."""

    peer: str
    now: float
    """by the peer's clock"""
    began: float
    ended: float
    aliases: Mapping[str, str]

    def flow(self, ends: FlowEnds, before: RemoteFlow | None) -> RemoteFlow:
        """A flow of the peer as a record. `before`: its last record. Values of a source that the peer no longer has are kept from that."""
        known = {} if before is None else before.sources
        return RemoteFlow(
            state=ends.state,
            wanted=ends.wanted,
            version=ends.version,
            since=ends.since,
            reason=ends.reason,
            next=ends.next,
            sources={id_: self._source(source, known.get(id_)) for id_, source in ends.sources.items()},
            writes={id_: self._places(places) for id_, places in ends.sinks.items()},
        )

    def _source(self, source: SourceEnds, before: RemoteSource | None) -> RemoteSource:
        found = RemoteSource(reads=self._places(source.reads), waters=_waters(source))
        if source.waits is not None and source.looked_s is not None:
            found = _with_waits(found, source.waits, self.began - source.looked_s)
        elif before is not None:
            kept = ("looked_at", "rows", "files", "bytes", "oldest_s", "reckoned")
            found = replace(found, **{name: getattr(before, name) for name in kept})
        through = source.through
        if through is None or not through.at:
            return replace(found, unknown="" if through is None else remote_name(self.peer, through.unknown))
        return replace(found, through=parse_time(through.at).timestamp() - self._ahead_s)

    @property
    def _ahead_s(self) -> float:
        """Seconds by which the peer's clock is ahead; the error is at most half the duration of the request."""
        return self.now - (self.began + self.ended) / 2

    def _places(self, places: Sequence[EndPlace]) -> tuple[ExternalPlace, ...]:
        return tuple(
            ExternalPlace(kind=place.kind, at=_as_here(place.kind, place.at, self.aliases), topic=place.topic, many=place.many)
            for place in places
        )


def _with_waits(source: RemoteSource, there: Waits, at: float, *, reckoned: bool = False) -> RemoteSource:
    amounts = {"rows": there.rows, "files": there.files, "bytes": there.bytes, "oldest_s": there.seconds}
    return replace(source, looked_at=at, reckoned=reckoned, **amounts)


def _as_here(kind: str, at: str, aliases: Mapping[str, str]) -> str:
    """A place with the servers' names that flows here use.

    Args:
        kind: the kind of the place, such as `topic`.
        at: its servers, or its address.
        aliases: name of a server at the peer → its name here.
    """
    if kind == "topic":
        return ",".join(sorted(aliases.get(server, server) for server in at.split(",")))
    scheme, mark, rest = at.rpartition("://")
    server, slash, path = rest.partition("/")
    return f"{scheme}{mark}{aliases.get(server, server)}{slash}{path}"


def _waters(source: SourceEnds) -> Waters | None:
    levels = source.levels
    return None if levels is None else Waters(high=_level(levels.high), low=_level(levels.low), capacity=_level(levels.capacity))


def _level(level: EndLevel) -> SourceLevel:
    return SourceLevel(rows=level.rows, bytes=level.bytes, age_s=level.age_s)


def set_peer(registry: Registry, name: str, *, masters: Sequence[str], aliases: Mapping[str, str], by: str) -> None:
    """Create or replace a peer.

    Args:
        registry: where peers are recorded.
        name: the peer.
        masters: the addresses of its masters' APIs.
        aliases: name of a server at the peer → its name here.
        by: the user, for the record.

    Raises:
        Refused: the name, or the address of a master, is invalid.
    """
    if not PEER.fits(name):
        raise Refused(f'"{name}" is not a valid name of a peer', remedy="write it with a-z, 0-9 and _, such as berlin", code="peer-name")
    peer = Peer(masters=tuple(address_of(each) for each in masters), aliases=dict(aliases), by=by, at=now_text())
    if not peer.masters:
        raise Refused(f"peer {name} has no address of a master", remedy="pass the address of one: https://HOST:PORT", code="master-missing")
    again(lambda: registry.commit(put(registry, PEER(name), peer)))
