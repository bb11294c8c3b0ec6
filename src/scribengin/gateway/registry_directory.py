"""The directory of a gateway on a registry: the lanes of the flows that run, the gateways that are up, the tokens of the API, and the
reports of agents as records.

One thread reads what has changed and writes what agents have reported; requests are answered from memory. While the registry does not
answer, the last state stays in force, and reports wait.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import msgspec
import structlog

from scribengin.api.tokens import TokenProver
from scribengin.control.agents import DEFAULT_CHAIN, ordered_chain, rolled_version
from scribengin.control.masters import addresses, certificates_of, token_of
from scribengin.control.registry_cache import Mirror
from scribengin.core.errors import ScribenginError, Unreachable, text_of
from scribengin.core.time_text import moment_text, now_text
from scribengin.gateway.agent_records import AgentRecords
from scribengin.gateway.directory import KeptReport, TokenHolder
from scribengin.gateway.rollouts import begin_rollout, decide_rollout, present_version, standing_of_agent
from scribengin.packages.fetch import FetchedPackages
from scribengin.plan.agent_lanes import lanes_of
from scribengin.registry.contract import Conflict, Create, Delete, RegistryEntry
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import GatewayRecord, RollOutRecord
from scribengin.registry.tree import AGENT, CHAIN, DECOMMISSIONED, DESIRED, GATEWAY, HOSTS, MAPPED, ROLL_OUT, SPEC, TOKEN
from scribengin.wire.protocol import AgentConfig, GatewayMember

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from scribengin.control.home import Home
    from scribengin.plan.agent_lanes import AgentLane
    from scribengin.registry.connection_settings import ConnectionSettings
    from scribengin.registry.contract import Registry
    from scribengin.registry.records import AgentRecord, AgentTierSpec, ChainRecord, Spec, Token
    from scribengin.wire.protocol import AgentReport

_log = structlog.get_logger(__name__)
_CYCLE_S = 0.5
"""seconds between two cycles if nothing changes: reports are written, and roll-outs are advanced"""
_ROLL_OUT_S = 2.0
_AGAIN_S = 5.0
"""seconds after which a flow that could not be planned is planned again"""
_OPEN = TokenHolder("client", admin=True)
_PATTERN = "agent"
"""the label of a token whose value is the name of an agent, or a pattern of names"""


class LanePlanner(Protocol):
    """Plans a version of a flow without Spark."""

    def __call__(self, flow: str, version: int, spec: Spec, /) -> Mapping[str, AgentLane]:
        """The lanes of a version. Raises ScribenginError."""


def lane_planner(packages: FetchedPackages, scratch: Path) -> LanePlanner:
    """Returns a planner of lanes.

    Args:
        packages: The packages of this machine, and those of masters.
        scratch: The folder for logs, if the state of a flow is in another file system.
    """

    def plan(_flow: str, version: int, spec: Spec) -> Mapping[str, AgentLane]:
        from scribengin.local.prepare import prepare
        from scribengin.state.places import located

        path = packages.get(spec.package) / spec.path
        prepared = prepare(path, state=located(spec.state), base=Path(spec.base), here=scratch)
        return lanes_of(prepared.plan, version=version)

    return plan


@contextmanager
def open_registry_directory(
    settings: ConnectionSettings,
    home: Home,
    environment: Mapping[str, str],
    *,
    name: str,
    group: str = "",
    cost: float = 1.0,
    asks_tokens: bool = True,
) -> Iterator[RegistryDirectory]:
    """The directory of a gateway process, with a client of the registry of its own.

    Args:
        settings: The connection settings of the registry.
        home: The folder of this machine, for packages.
        environment: The variables with the token and the certificates of masters, from which packages are fetched.
        name: See `RegistryDirectory`, like the next ones.
        group: The group of gateways.
        cost: The cost of this gateway.
        asks_tokens: A request needs a token.

    Raises:
        Unreachable: The registry does not answer.
        Refused: The registry is open to all, and that is not allowed.
    """
    registry = settings.open()
    try:
        packages = FetchedPackages(
            home.packages, lambda: addresses(registry), token=token_of(environment), certificates=certificates_of(environment)
        )
        plan = lane_planner(packages, home.scratch)
        about = {"name": name, "group": group, "cost": cost, "asks_tokens": asks_tokens, "release": metadata.version("scribengin")}
        with RegistryDirectory(registry, plan, **about) as directory:  # type: ignore[arg-type]
            yield directory
    finally:
        registry.close()


@dataclass(frozen=True, slots=True)
class _Tier:
    """A tier of agents in a flow that runs or is paused. `lanes`: version → its lanes, for the versions that agents may run."""

    name: str
    """FLOW.TIER"""
    spec: AgentTierSpec
    record: RollOutRecord
    lanes: Mapping[int, Mapping[str, AgentLane]]
    is_paused: bool = False

    def lanes_for(self, agent: str) -> Mapping[str, AgentLane]:
        """The lanes in the version that the agent is to run; in the newest one that could be planned if that is not known."""
        found = self.lanes.get(rolled_version(self.record, agent))
        return found if found is not None else next(iter(self.lanes.values()), {})


@dataclass(frozen=True, slots=True)
class _Known:
    """The state of the registry as far as requests need it."""

    tiers: tuple[_Tier, ...] = ()
    lanes: Mapping[str, AgentLane] = field(default_factory=dict)
    members: tuple[tuple[str, GatewayMember], ...] = ()
    """the gateways of this group by name"""
    chain: ChainRecord | None = None
    tokens: Mapping[str, Token] = field(default_factory=dict)
    bound: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """agent → the tiers that are bound to it"""
    decommissioned: frozenset[str] = frozenset()
    faults: tuple[str, ...] = ()
    """why flows could not be planned here"""


class RegistryDirectory:
    """The directory of a gateway on a registry. Its `with` block keeps it up to date. `announce` makes the gateway known to agents."""

    def __init__(
        self,
        registry: Registry,
        plan: LanePlanner,
        *,
        name: str,
        group: str = "",
        cost: float = 1.0,
        asks_tokens: bool = True,
        release: str = "",
    ) -> None:
        """Read the registry for the first time.

        Args:
            registry: Its client of the registry, which it does not close.
            plan: Plans the lanes of a version.
            name: The name of this gateway.
            group: The name of its group of gateways; empty: it serves all lanes.
            cost: Its cost: agents use gateways of lower cost first.
            asks_tokens: A request needs a token. Otherwise one may be absent, but a token that is sent must be valid.
            release: The release of Scribengin.

        Raises:
            Unreachable: The registry does not answer.
        """
        self._registry = registry
        self._plan = plan
        self._name = name
        self._group = group
        self._cost = cost
        self._asks_tokens = asks_tokens
        self._release = release
        self._mirror = Mirror(registry)
        self._records = AgentRecords(registry, name)
        self._prover = TokenProver(self._token_record)
        self._lock = threading.Lock()
        self._known = _Known()
        self._configs: dict[tuple[str, str], AgentConfig] = {}
        self._planned: dict[tuple[str, int], Mapping[str, AgentLane]] = {}
        self._failed: dict[tuple[str, int], tuple[float, str]] = {}
        """(flow, version) → when planning failed, and why"""
        self._url = ""
        self._said = ""
        self._rolled_s = 0.0
        self._is_stale = True
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="agent-directory", daemon=True)
        self._refresh()

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Write the last reports, and remove the gateway's record."""
        self._ended.set()
        self._mirror.changed.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(ScribenginError):
            self._records.write(self._assigned, force=True)
        with suppress(ScribenginError):
            path = GATEWAY(self._name).path
            there = self._registry.read(path)
            if there is not None and there.session == self._registry.session().id:
                self._registry.commit(Delete(path, there.version))
        self._mirror.close()

    def announce(self, url: str) -> None:
        """Make this gateway known to agents, at this address, as long as its process runs. Raises Unreachable, Conflict."""
        self._url = url.rstrip("/")
        self._announce()
        self._refresh()

    # What a gateway asks: see `AgentDirectory`.

    def config(self, agent: str, group: str) -> AgentConfig:
        """See `AgentDirectory`."""
        known = self._known
        with self._lock:
            found = self._configs.get((agent, group))
        if found is not None:
            return found
        made = self._config(known, agent, group)
        made = msgspec.structs.replace(made, revision=hashlib.sha256(msgspec.json.encode(made, order="sorted")).hexdigest()[:16])
        with self._lock:
            if known is self._known:
                if len(self._configs) > 100_000:
                    self._configs.clear()
                self._configs[agent, group] = made
        return made

    def report(self, report: AgentReport) -> None:
        """See `AgentDirectory`."""
        if AGENT.fits(report.agent):
            self._records.take(report)

    def lanes(self) -> Mapping[str, AgentLane]:
        """See `AgentDirectory`."""
        return self._known.lanes

    def allows(self, token: str, agent: str) -> bool:
        """See `AgentDirectory`."""
        if not token:
            return not self._asks_tokens
        kept = self._prover.prove(token)
        if kept is None or kept.role != "agent":
            return False
        pattern = kept.labels.get(_PATTERN, kept.name)
        return pattern == agent or fnmatchcase(agent, pattern)

    def holder(self, token: str) -> TokenHolder | None:
        """See `AgentDirectory`."""
        if not token:
            return None if self._asks_tokens else _OPEN
        kept = self._prover.prove(token)
        if kept is None or (kept.role != "agent" and (kept.role != "admin" or kept.labels)):
            return None
        return TokenHolder(kept.labels.get(_PATTERN, kept.name), admin=kept.role == "admin")

    def agents(self) -> list[KeptReport]:
        """See `AgentDirectory`. Raises Unreachable."""
        return self._records.all()

    # The state of the registry.

    def _token_record(self, id_: str) -> Token | None:
        return self._known.tokens.get(id_)

    def _config(self, known: _Known, agent: str, group: str) -> AgentConfig:
        gateways = _chain(known, agent)
        if not AGENT.fits(agent):
            message = f'"{agent[:100]}" is not a valid name of an agent: start it with --name, and letters, digits, ".", "_", "-" or ":"'
            return AgentConfig(gateways=gateways, message=message)
        if agent in known.decommissioned:
            return AgentConfig(
                gateways=gateways, message=f"agent {agent} is decommissioned; undo this with: scribengin agent undrain {agent}"
            )
        lanes = {}
        bound = known.bound.get(agent, frozenset())
        for tier in known.tiers:
            for name, lane in tier.lanes_for(agent).items():
                if tier.name in bound or lane.group == group:
                    config = lane.config
                    lanes[name] = msgspec.structs.replace(config, paused=True) if tier.is_paused else config
        message = "" if lanes else _nothing(group, known)
        return AgentConfig(lanes=lanes, gateways=gateways, message=message)

    def _assigned(self, agent: str, group: str) -> dict[str, str | None]:
        """FLOW.TIER → the group because of which the agent runs it; None if it is bound to it."""
        known = self._known
        if agent in known.decommissioned:
            return {}
        bound = known.bound.get(agent, frozenset())
        found: dict[str, str | None] = {}
        for tier in known.tiers:
            if tier.name in bound:
                found[tier.name] = None
            elif any(lane.group == group for lane in tier.lanes_for(agent).values()):
                found[tier.name] = group
        return found

    def _keep(self) -> None:
        while not self._ended.is_set():
            self._mirror.changed.wait(_CYCLE_S)
            if self._ended.is_set():
                return
            try:
                self._cycle()
                self._said = ""
            except Unreachable as error:
                self._say(f"the registry does not answer, and its last state stays in force: {text_of(error)}")
                self._ended.wait(_CYCLE_S)
            except Exception:
                _log.exception("the directory of agents failed, and its last state stays in force")
                self._ended.wait(_AGAIN_S)

    def _cycle(self) -> None:
        now_s = time.monotonic()
        again = any(now_s - failed_s > _AGAIN_S for failed_s, _ in self._failed.values())
        if self._mirror.changed.is_set() or self._is_stale or again:
            self._refresh()
        if self._url:
            self._announce()
        self._records.write(self._assigned)
        if now_s - self._rolled_s > _ROLL_OUT_S:
            self._rolled_s = now_s
            self._roll_out()

    def _refresh(self) -> None:
        self._is_stale = True
        self._mirror.refresh()
        known = self._read()
        with self._lock:
            if known != self._known:
                self._known = known
                self._configs.clear()
        self._is_stale = False

    def _read(self) -> _Known:
        mirror, faults = self._mirror, list[str]()
        tiers = tuple(self._tiers(faults))
        lanes: dict[str, AgentLane] = {}
        for tier in tiers:
            for _, served in sorted(tier.lanes.items()):
                paused = {name: replace(lane, config=msgspec.structs.replace(lane.config, paused=True)) for name, lane in served.items()}
                lanes |= paused if tier.is_paused else served
        members = []
        there = [name for name in mirror.children("gateways") if GATEWAY.fits(name)]
        mirror.fetch([GATEWAY(name).path for name in there])
        for name in there:
            found_gateway = mirror.stored(GATEWAY(name))
            if isinstance(found_gateway, Stored) and found_gateway.record.group == self._group:
                members.append((name, GatewayMember(found_gateway.record.url, found_gateway.record.cost)))
        chain_name = self._group or DEFAULT_CHAIN
        chain = mirror.stored(CHAIN(chain_name)) if CHAIN.fits(chain_name) else None
        ids = [id_ for id_ in mirror.children("tokens") if TOKEN.fits(id_)]
        mirror.fetch([TOKEN(id_).path for id_ in ids])
        tokens = {id_: token.record for id_ in ids if isinstance(token := mirror.stored(TOKEN(id_)), Stored)}
        agents = [name for name in mirror.children(HOSTS) if AGENT.fits(name)]
        mirror.fetch([DECOMMISSIONED(name).path for name in agents], [f"{HOSTS}/{name}/lns" for name in agents])
        mapped = [(name, node) for name in agents for node in mirror.children(f"{HOSTS}/{name}/lns") if MAPPED.fits(name, node)]
        mirror.fetch([MAPPED(*each).path for each in mapped])
        bound: dict[str, set[str]] = {}
        for name, node in mapped:
            if isinstance(binding := mirror.stored(MAPPED(name, node)), Stored) and binding.record.group is None:
                bound.setdefault(name, set()).add(node)
        return _Known(
            tiers=tiers,
            lanes=lanes,
            members=tuple(members),
            chain=chain.record if isinstance(chain, Stored) else None,
            tokens=tokens,
            bound={name: frozenset(nodes) for name, nodes in bound.items()},
            decommissioned=frozenset(name for name in agents if isinstance(mirror.stored(DECOMMISSIONED(name)), Stored)),
            faults=tuple(faults),
        )

    def _tiers(self, faults: list[str]) -> Iterator[_Tier]:
        mirror = self._mirror
        flows = [flow for flow in mirror.children("flows") if DESIRED.fits(flow)]
        mirror.fetch([DESIRED(flow).path for flow in flows])
        wanted = {flow: found.record for flow in flows if isinstance(found := mirror.stored(DESIRED(flow)), Stored) and found.entry.value}
        active = {flow: each for flow, each in wanted.items() if each.state in ("running", "paused")}
        mirror.fetch([SPEC(flow, str(each.version)).path for flow, each in active.items()])
        used = set[tuple[str, int]]()
        before = {tier.name: tier for tier in self._known.tiers}
        for flow, desired in active.items():
            spec = self._spec(flow, desired.version)
            for tier, about in spec.agents.items() if spec is not None else ():
                if self._group and about.gateways not in ("", self._group):
                    continue
                record = self._record(flow, tier, desired.version)
                lanes = {}
                used.add((flow, desired.version))  # its roll-out begins
                for version in {record.version} if record.stage == "done" else {record.version, record.before} - {0}:
                    used.add((flow, version))
                    if (planned := self._lanes_of_tier(flow, version, tier, faults)) is not None:
                        lanes[version] = planned
                name, is_paused = f"{flow}.{tier}", desired.state == "paused"
                if not lanes and name in before:  # agents keep what they have
                    used |= {(flow, version) for version in before[name].lanes}
                    yield replace(before[name], is_paused=is_paused)
                else:
                    yield _Tier(name, about, record, lanes, is_paused)
        for version_left in self._planned.keys() - used:
            del self._planned[version_left]
        for version_left in self._failed.keys() - used:
            del self._failed[version_left]

    def _record(self, flow: str, tier: str, version: int) -> RollOutRecord:
        found = self._mirror.stored(ROLL_OUT(flow, tier))
        return found.record if isinstance(found, Stored) else RollOutRecord(version=version)

    def _spec(self, flow: str, version: int) -> Spec | None:
        found = self._mirror.stored(SPEC(flow, str(version))) if version > 0 else None
        return found.record if isinstance(found, Stored) and found.entry.value else None

    def _lanes_of_tier(self, flow: str, version: int, tier: str, faults: list[str]) -> dict[str, AgentLane] | None:
        """The lanes of one tier in a version; None if the version cannot be planned now."""
        spec, found = self._spec(flow, version), self._lanes(flow, version, faults)
        if spec is None or found is None:
            return None
        sources = spec.agents[tier].lanes if tier in spec.agents else {}
        return {name: lane for name, lane in found.items() if lane.config.source in sources}

    def _lanes(self, flow: str, version: int, faults: list[str]) -> Mapping[str, AgentLane] | None:
        """The lanes of a version; None if it cannot be planned now."""
        key = (flow, version)
        if key in self._planned:
            return self._planned[key]
        failed_s, why = self._failed.get(key, (0.0, ""))
        if not why or time.monotonic() - failed_s > _AGAIN_S:
            spec = self._spec(flow, version)
            try:
                if spec is not None:
                    self._planned[key] = found = self._plan(flow, version, spec)
                    self._failed.pop(key, None)
                    return found
                why_now = f"version {version} of flow {flow} is not in the registry"
            except ScribenginError as error:
                why_now = f"version {version} of flow {flow} cannot be planned here: {text_of(error)}"
            except Exception as error:  # the code of a flow in Python
                why_now = f"version {version} of flow {flow} cannot be planned here: {type(error).__name__}: {error}"
            if why_now != why:
                _log.error(why_now)
            why = why_now
            self._failed[key] = (time.monotonic(), why)
        faults.append(why)
        return None

    # What gateways write.

    def _announce(self) -> None:
        """Create the record of this gateway, unless it exists in this session."""
        spot = GATEWAY(self._name)
        there = self._registry.read(spot.path)
        if there is not None and there.session == self._registry.session().id:
            if isinstance(there, RegistryEntry) and there.value.get("url") == self._url:
                return
            self._registry.commit(Delete(spot.path, there.version))
        elif there is not None:
            mine = isinstance(there, RegistryEntry) and there.value.get("url") == self._url
            if not mine:
                self._say(f"another gateway named {self._name} is registered: give this one another name, with --name")
                return
            self._registry.commit(Delete(spot.path, there.version))
        record = GatewayRecord(
            url=self._url,
            group=self._group,
            cost=self._cost,
            since=now_text(),
            release=self._release,
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        self._registry.commit(spot.create(record, ephemeral=True))

    def _roll_out(self) -> None:
        """Begin and advance the roll-outs of the tiers that this gateway serves."""
        now_s = time.time()
        for tier in self._known.tiers:
            flow, _, name = tier.name.partition(".")
            desired = self._mirror.stored(DESIRED(flow))
            version = desired.record.version if isinstance(desired, Stored) else 0
            kept = read_record(self._registry, ROLL_OUT(flow, name))
            record = kept.record if isinstance(kept, Stored) else None
            spec = self._spec(flow, version)
            if spec is None or name not in spec.agents:
                continue
            if record is not None and record.version == version and record.stage in ("done", "back"):
                continue
            if self._lanes(flow, version, []) is None:
                continue
            lanes = {f"{flow}.{source}" for source in spec.agents[name].lanes}
            reports = {agent: standing_of_agent(each, lanes) for agent, each in self._agents_of(tier.name, spec.agents[name]).items()}
            same = record is not None and self._is_same(flow, version, record, name)
            decided = decide_rollout(begin_rollout(record, version, reports, now_s, same=same), reports, now_s)
            if decided is record:
                continue
            spot = ROLL_OUT(flow, name)
            with suppress(Conflict):  # another gateway has advanced it
                self._registry.commit(kept.replace(decided) if isinstance(kept, Stored) else Create(spot.path, decided.dump()))
                self._mirror.forget(spot.path)
                self._tell(tier.name, record, decided)
            self._is_stale = True

    def _agents_of(self, node: str, spec: AgentTierSpec) -> dict[str, AgentRecord]:
        known = self._known
        groups = set(spec.lanes.values())
        return {
            name: record
            for name, record in self._records.read().items()
            if name not in known.decommissioned and (record.group in groups or node in known.bound.get(name, ()))
        }

    def _is_same(self, flow: str, version: int, record: RollOutRecord, tier: str) -> bool:
        """True if agents do the same in this version as in the one that they have."""
        new, old = (self._lanes_of_tier(flow, each, tier, []) for each in (version, present_version(record)))
        if new is None or old is None:
            return False
        mine, theirs = ({name: msgspec.structs.replace(lane.config, version=0) for name, lane in lanes.items()} for lanes in (new, old))
        return mine == theirs

    @staticmethod
    def _tell(node: str, before: RollOutRecord | None, now: RollOutRecord) -> None:
        if before is not None and (before.version, before.stage) == (now.version, now.stage):
            return
        if now.stage == "back":
            _log.warning("a version was taken back from agents", tier=node, version=now.version, to=now.before, reason=now.reason)
        else:
            _log.info("roll-out to agents", tier=node, version=now.version, stage=now.stage, since=moment_text(now.since))

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            _log.warning(text)


def _chain(known: _Known, agent: str) -> list[GatewayMember]:
    """The gateways of an agent, in the order in which it tries them."""
    return [member for _, member in ordered_chain(agent, known.members, known.chain)]


def _nothing(group: str, known: _Known) -> str:
    if known.faults:
        return "; ".join(known.faults[:3])
    groups = sorted({lane.group for tier in known.tiers for lanes in tier.lanes.values() for lane in lanes.values()})
    shown = ", ".join(f'"{each}"' for each in groups) or "none"
    return f'no running flow collects from agents of the group "{group}"; groups: {shown}'
