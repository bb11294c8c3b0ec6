"""Stories: what happens to a flow, line by line, and what a master does about it. One text file each, in `stories/`.

    flow tweets: edge -> core      a flow and its tiers, and who feeds whom; `flow tweets: all` for one of one tier
    nodes a b                      these answer now, and no others
    decommission a
    wish running                   a person's word; `wish running v2` names a version, `wish running v2 without core` its tiers
    map core a                     to this node only; `map core anywhere`
    group core g b=1 c=2           it runs on these hosts, with their costs; `group core none`
    each core                      it has a worker on each host; `each none`: one worker
    room b 1                       cores that the node has left; `room b any`
    host b pc7                     the node's machine is called so
    up core                        the tier's newest process runs, holds the lease, and has reached the wish
    process core exited 1          also `running`, `gone`; `process core starting because REASON; REMEDY`
    lease core                     the newest process holds it; `lease core lost`; `lease core by 3`; `lease core spare`: its spare does
    report core running commits 5  also `failed permanent CAUSE`, `recovering CAUSE`, `drained`
    operation rewind edge          one of that kind begins, in which these tiers have a part; `operation renew v1 edge` as that version
    done edge                      the tier's newest process has done its part of it; `done edge badly CAUSE`
    held WHY                       its records say nothing; `held no more`
    refused PATH WHY               what a person has written by hand; `refused nothing`
    damaged run core               also `wanted`, `report`, `status` (of the flow); it says nothing until it is set aside
    gone run core                  a record of the master's was removed; also `wanted`
    max_delay 300                  seconds, of the flow
    delay 400 CAUSE                the age of the oldest thing that waits, and what holds it up; `delay unknown`
    standby core                   a spare is wanted for it; `standby core none`
    spare core running             the spare's newest process; also `exited 1`, `gone`
    spare core says standby        also `starting`, `failed permanent CAUSE`, `stopped`
    of tweets                      what follows is of this flow, where there are several
    label team=search              one that the flow has
    autoscale core 60 1 8 act      the bound of its lag in seconds, the fewest and the most executors, and the mode
    load core lag 90 falls -1 busy 100 work 2 read 1000 arrive 1500 wait 90000   as its workers reported; `load core none`;
                                   `parts 4` is the number of partitions of its state
    limited                        a person limits the flow's rate; `not limited`
    executors a                    workers on that node have executors; `executors a none`: Spark runs inside them
    cores core 2                   what a worker of the tier gets; `memory core 3`, in GiB
    quota team=search cores 4      also `memory 8` (GiB), `rows 1000`; `quota team=search closed WHY`; `quota team=search none`
    idle                           the flow has read nothing for a while; `busy`: it reads
    workflow drained: a -> b       an operation over flows, and who feeds whom
    meet a.out -> b.in rows 100    b reads what a writes, and `high_water` of its source is 100 rows
    waits b.in 150                 rows, as b's worker said last
    the launcher loses what is asked next
    wait 15                        seconds
    look                           the master looks, and does what follows: `>` what it does, `=` how the flow stands where that has changed

Lines with `#` are for the reader. `python -m tests.control.story FILE` prints a story as it goes now.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.control.autoscale import TierLoad
from scribengin.control.decide import decide
from scribengin.control.placement import load_of, on_each_host
from scribengin.control.world import (
    Action,
    Advance,
    Allot,
    Allowance,
    Ask,
    BlockedFlow,
    Delay,
    DownstreamReader,
    FlowSeen,
    Forget,
    FreeLease,
    Hide,
    HoldBack,
    Kill,
    LeaseHolder,
    NameGroup,
    Note,
    NoteSizes,
    ObservedTier,
    OperationStep,
    RunId,
    ScaleTier,
    SetAside,
    SetWorkerGoal,
    Show,
    SourceBacklog,
    Start,
    Tell,
    UnderWay,
    Wish,
    WorkerNode,
    WorkerProcess,
    World,
    flow_of,
)
from scribengin.registry.flow_ends import SourceLevel, Waters
from scribengin.registry.records import (
    UNDER_WAY,
    AlertSettings,
    AutoscaleSpec,
    Operation,
    Report,
    Run,
    TierWish,
    WorkflowOperationRecord,
    is_helper,
)
from scribengin.registry.tree import REPORT, RUN, STATUS, WANTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scribengin.registry.record_io import Spot


class Story:
    """The world of one story, and its master."""

    def __init__(self) -> None:
        self.world = World(now=0.0)
        self.flow = ""
        self.loses = False
        self.term = 0
        self.operations = 0
        self.away: dict[RunId, WorkerProcess] = {}
        """processes on nodes that do not answer"""

    def retell(self, text: str) -> str:
        """The story with what the master does now in place of the lines that begin with `>` and `=`."""
        told = []
        for line in text.splitlines():
            words = line.split("#")[0].split()
            if words[:1] in (["="], [">"]):
                continue
            told.append(line)
            if words == ["look"]:
                told += self._look()
            elif words:
                self._happen(words)
        return "\n".join(told) + "\n"

    def seen(self) -> World:
        """The world as the master sees it: with the helpers of tiers that have a worker on each host."""
        load = load_of(self.world.processes)
        for flow in self.world.flows.values():
            if (spread := on_each_host(flow, self.world.nodes, load)) != flow:
                self._set_flow(spread)
        return self.world

    def _look(self) -> list[str]:
        told = []
        here = self.flow
        for action in decide(self.seen()):
            self.flow = flow_of(action) or here
            self._act(action)
            said = _said(action)
            told.append(
                said.replace("> ", f"> {self.flow}: ", 1) if len(self.world.flows) + len(self.world.held) > 1 and flow_of(action) else said
            )
        self.flow = here
        self.loses = False
        return told

    def _happen(self, words: list[str]) -> None:
        match words:
            case ["flow", name, *rest]:
                self.flow = name.rstrip(":")
                self._set_flow(FlowSeen(self.flow, Wish(1, "stopped", 0), _tiers(" ".join(rest))))
            case ["of", name]:
                self.flow = name
            case ["meet", writer, "->", reader, "rows", most]:
                self._meet(writer.split("."), reader.split("."), int(most))
            case ["waits", reader, rows]:
                name, source = reader.split(".")
                self.world = replace(self.world, waiting={**self.world.waiting, (name, source): SourceBacklog(rows=int(rows))})
            case ["workflow", goal, *rest]:
                self._workflow(goal.rstrip(":"), rest)
            case ["label", said]:
                name, _, value = said.partition("=")
                flow = self.world.flows[self.flow]
                self._set_flow(replace(flow, labels={**flow.labels, name: value}))
            case ["cores", tier, number]:
                self._set_tier(replace(self._tier(tier), cores=int(number)))
            case ["memory", tier, number]:
                self._set_tier(replace(self._tier(tier), memory_bytes=int(number) * 2**30))
            case ["autoscale", tier, lag_s, least, most, mode]:
                scale = AutoscaleSpec(lag_s=float(lag_s), min=int(least), max=int(most), mode=mode)  # type: ignore[arg-type]
                self._set_tier(replace(self._tier(tier), autoscale=scale))
            case ["load", tier, *rest]:
                self._load(tier, rest)
            case ["limited"] | ["not", "limited"]:
                self._set_flow(replace(self.world.flows[self.flow], limited=words == ["limited"]))
            case ["executors", name, *none]:
                node = replace(self.world.nodes[name], host=self.world.nodes[name].host or name, executors=not none)
                self.world = replace(self.world, nodes={**self.world.nodes, name: node})
            case ["quota", name, *rest]:
                self._quota(name, rest)
            case ["idle" | "busy" as how]:
                self.world = replace(self.world, idle={**self.world.idle, self.flow: how == "idle"})
            case ["nodes", *names]:
                nodes = {name: self.world.nodes.get(name, WorkerNode()) for name in names}
                there = {**self.away, **self.world.processes}
                self.away = {id_: each for id_, each in there.items() if each.node not in nodes}
                seen = {id_: each for id_, each in there.items() if each.node in nodes}
                self.world = replace(self.world, nodes=nodes, processes=seen)
            case ["decommission", name]:
                self.world = replace(
                    self.world, nodes={**self.world.nodes, name: replace(self.world.nodes.get(name, WorkerNode()), decommissioned=True)}
                )
            case ["wish", goal, *rest]:
                self._wish(goal, rest)
            case ["map", tier, node]:
                self._set_tier(replace(self._tier(tier), node="" if node == "anywhere" else node))
            case ["group", tier, "none"]:
                self._set_tier(replace(self._tier(tier), group="", hosts={}))
            case ["group", tier, name, *hosts]:
                costs = {at: float(cost) for at, cost in (said.split("=") for said in hosts)}
                self._set_tier(replace(self._tier(tier), group=name, hosts=costs))
            case ["each", tier]:
                flow = self.world.flows[self.flow]
                wanted = _without_helpers(flow.tiers if flow.wanted_tiers is None else flow.wanted_tiers)
                free = {name: replace(seen, feeders=frozenset(), node="") for name, seen in flow.tiers.items() if is_helper(name)}
                self._set_flow(replace(flow, each=wanted & {tier}, wanted_tiers=wanted, tiers={**flow.tiers, **free}))
            case ["room", name, cores]:
                free = None if cores == "any" else int(cores)
                self.world = replace(self.world, nodes={**self.world.nodes, name: replace(self.world.nodes[name], free_cores=free)})
            case ["host", name, machine]:
                self.world = replace(self.world, nodes={**self.world.nodes, name: replace(self.world.nodes[name], host=machine)})
            case ["up", tier]:
                for happening in (["process", tier, "running"], ["lease", tier], ["report", tier, "running"]):
                    self._happen(happening)
            case ["process", tier, state, "because", *words]:
                node = self._tier(tier).run.node  # type: ignore[union-attr]
                self._set_process(self._run(tier), WorkerProcess(node, state, reason=" ".join(words)))  # type: ignore[arg-type]
            case ["process", tier, state, *status]:
                id_ = self._run(tier)
                ended = {"status": int(status[0]), "reason": " ".join(status[1:])} if status else {}
                node = self._tier(tier).run.node  # type: ignore[union-attr]
                self._set_process(id_, WorkerProcess(node, state, **ended))  # type: ignore[arg-type]
            case ["standby", tier, *how]:
                self._set_tier(replace(self._tier(tier), standby=how != ["none"]))
            case ["spare", tier, "says", *rest]:
                self._report(tier, rest, spare=True)
            case ["spare", tier, state, *status]:
                id_ = self._run(tier, spare=True)
                self._set_process(id_, WorkerProcess(self._node(tier, spare=True), state, int(status[0]) if status else None))  # type: ignore[arg-type]
            case ["lease", tier, "lost"]:
                self._set_tier(replace(self._tier(tier), lease=None))
            case ["lease", tier, *by]:
                self.term += 1
                number = self._run(tier, spare=True).number if by == ["spare"] else int(by[1]) if by else self._run(tier).number
                self._set_tier(replace(self._tier(tier), lease=LeaseHolder(number, self.term)))
            case ["report", tier, *rest]:
                self._report(tier, rest)
            case ["held", "no", "more"]:
                held = self.world.held[self.flow]
                assert held.last is not None
                self.world = replace(self.world, held={name: each for name, each in self.world.held.items() if name != self.flow})
                self._set_flow(replace(held.last, status=held.status))
            case ["held", *why]:
                last = self.world.flows[self.flow]
                held = BlockedFlow(last.status, " ".join(why), "mend it", last=last)
                others = {name: flow for name, flow in self.world.flows.items() if name != self.flow}
                self.world = replace(self.world, flows=others, held={**self.world.held, self.flow: held})
            case ["refused", "nothing"]:
                self._set_flow(replace(self.world.flows[self.flow], refused={}))
            case ["refused", path, *why]:
                self._set_flow(replace(self.world.flows[self.flow], refused={path: {"why": " ".join(why), "remedy": "mend it"}}))
            case ["operation", kind, *rest]:
                self._operation(kind, rest)
            case ["done", tier, *rest]:
                self._done(tier, " ".join(rest[1:]))
            case ["damaged", what, *tier]:
                spot = {"run": RUN, "wanted": WANTED, "report": REPORT, "status": STATUS}[what](self.flow, *tier)
                flow = self.world.flows[self.flow]
                self._set_flow(replace(flow, damaged=(*flow.damaged, spot)))
            case ["gone", "run", tier]:
                self._set_tier(replace(self._tier(tier), run=None))
            case ["gone", "wanted", tier]:
                self._set_tier(replace(self._tier(tier), wish=None))
            case ["max_delay", seconds]:
                flow = self.world.flows[self.flow]
                self._set_flow(replace(flow, watched=AlertSettings(max_delay_s=float(seconds))))
            case ["delay", "unknown"]:
                self.world = replace(self.world, delays={})
            case ["delay", seconds, *cause]:
                self.world = replace(self.world, delays={self.flow: Delay(float(seconds), " ".join(cause))})
            case ["forgotten", name]:
                self.world = replace(self.world, flows={key: flow for key, flow in self.world.flows.items() if key != name})
            case ["the", "launcher", "loses", *_]:
                self.loses = True
            case ["wait", seconds]:
                self.world = replace(self.world, now=self.world.now + float(seconds))
            case _:
                raise ValueError(f"no such happening: {' '.join(words)}")

    def _load(self, tier: str, rest: list[str]) -> None:
        loads = {key: load for key, load in self.world.loads.items() if key != (self.flow, tier)}
        if rest != ["none"]:
            said = {what: float(number) for what, number in zip(rest[::2], rest[1::2], strict=True)}
            loads[self.flow, tier] = TierLoad(
                span_s=300.0,
                lag_s=said["lag"],
                least_lag_s=said["lag"],
                falls_per_s=said["falls"],
                most_lag_s=said["lag"],
                busy=said["busy"] / 100,
                work=said["work"],
                rows_per_s=said["read"],
                late_rows_per_s=said["read"],
                arriving_per_s=said["arrive"],
                lag_rows=int(said["wait"]),
                state_partitions=int(said["parts"]) if "parts" in said else None,
            )
        self.world = replace(self.world, loads=loads)

    def _scale(self, action: ScaleTier) -> None:
        """The next version, in which workers of the other tiers stay."""
        flow = self.world.flows[action.flow]
        tiers = {name: replace(tier, version=tier.version or flow.wish.version) for name, tier in flow.tiers.items()}
        tiers[action.tier] = replace(tiers[action.tier], version=0, executors=action.executors)
        wish = replace(flow.wish, version=flow.wish.version + 1, generation=flow.wish.generation + 1)
        self._set_flow(replace(flow, tiers=tiers, wish=wish, sizes=action.sizes))

    def _quota(self, name: str, rest: list[str]) -> None:
        label, _, value = name.partition("=")
        quotas = {key: each for key, each in self.world.quotas.items() if key != name}
        match rest:
            case ["none"]:
                pass
            case ["closed", *why]:
                quotas[name] = Allowance(label, value, closed=" ".join(why))
            case _:
                said = {what: int(number) for what, number in zip(rest[::2], rest[1::2], strict=True)}
                memory_bytes = said["memory"] * 2**30 if "memory" in said else None
                quotas[name] = Allowance(label, value, said.get("cores"), memory_bytes, said.get("rows"))
        self.world = replace(self.world, quotas=quotas)

    def _wish(self, goal: str, rest: list[str]) -> None:
        flow = self.world.flows[self.flow]
        version = int(rest[0][1:]) if rest else flow.wish.version
        gone = set(rest[2:])
        wanted = _without_helpers(flow.tiers) - gone if gone else flow.wanted_tiers
        newest = max(each.wish.generation for each in self.world.flows.values())
        wish = Wish(version, goal, newest + 1)  # type: ignore[arg-type]
        self._set_flow(replace(flow, wish=wish, wanted_tiers=wanted, each=flow.each - gone))

    def _meet(self, writer: list[str], reader: list[str], most: int) -> None:
        (flow, sink), (other, source) = writer, reader
        readers = (*self.world.readers.get(flow, ()), DownstreamReader(sink, other, source))
        self.world = replace(self.world, readers={**self.world.readers, flow: readers})
        waters = Waters(high=SourceLevel(rows=most), low=SourceLevel(rows=most // 2), capacity=SourceLevel(rows=2 * most))
        seen = self.world.flows[other]
        self._set_flow(replace(seen, waters={**seen.waters, source: waters}))

    def _workflow(self, goal: str, rest: list[str]) -> None:
        feeders = {name: tuple(sorted(seen.feeders)) for name, seen in _tiers(" ".join(rest)).items()}
        begun = {name: self.world.flows[name].wish.generation for name in feeders}
        self.operations += 1
        operation = WorkflowOperationRecord(goal=goal, step="ask", feeders=feeders, begun=begun, by="ann")  # type: ignore[arg-type]
        self.world = replace(self.world, workflows={**self.world.workflows, str(self.operations): operation})

    def _report(self, tier: str, rest: list[str], *, spare: bool = False) -> None:
        seen = self._tier(tier)
        assert seen.wish is not None
        state, *more = rest
        commits = int(more[1]) if more[:1] == ["commits"] else 0
        permanent = more[:1] == ["permanent"]
        cause = "" if commits else " ".join(more[1:] if permanent else more)
        number = self._run(tier, spare=spare).number
        wish = seen.wish
        report = Report(
            run=number,
            generation=wish.generation,
            version=wish.version,
            state=state,  # type: ignore[arg-type]
            commits=commits,
            cause=cause,
            permanent=permanent,
        )
        self._set_tier(replace(seen, spare_report=report) if spare else replace(seen, report=report))

    def _operation(self, kind: str, rest: list[str]) -> None:
        flow = self.world.flows[self.flow]
        version, tiers = (int(rest[0][1:]), rest[1:]) if rest[0].startswith("v") else (flow.wish.version, rest)
        self.operations += 1
        operation = Operation(kind=kind, step="stop", version=version, tiers=tuple(tiers))  # type: ignore[arg-type]
        wish = replace(flow.wish, generation=flow.wish.generation + 1)
        self._set_flow(replace(flow, wish=wish, under_way=UnderWay(str(self.operations), operation)))

    def _done(self, tier: str, error: str) -> None:
        flow, seen = self.world.flows[self.flow], self._tier(tier)
        assert flow.under_way is not None
        assert seen.wish is not None
        number, wish = self._run(tier).number, seen.wish
        told = {"task": flow.under_way.id, "task_error": error}
        report = Report(run=number, generation=wish.generation, version=wish.version, state="stopped", **told)  # type: ignore[arg-type]
        self._set_tier(replace(seen, report=report))

    def _act(self, action: Action) -> None:
        match action:
            case SetWorkerGoal(_, tier, wish):
                self._set_tier(replace(self._tier(tier), wish=wish))
            case Start(_, tier, run, spare):
                self._set_run(tier, run, spare=spare)
                if not self.loses:
                    self._set_process(self._run(tier, spare=spare), WorkerProcess(run.node, "starting"))
            case Note(_, tier, run, spare):
                self._set_run(tier, run, spare=spare)
            case FreeLease(id_):
                self._set_tier(replace(self._tier(id_.tier), lease=None))
            case Kill(id_, node):
                self._set_process(id_, WorkerProcess(node, "gone"))
            case Forget(id_):
                self.world = replace(self.world, processes={key: each for key, each in self.world.processes.items() if key != id_})
            case OperationStep(name, id_, operation):
                under_way = UnderWay(id_, operation) if operation.step in UNDER_WAY else None
                self._set_flow(replace(self.world.flows[name], under_way=under_way))
            case NoteSizes(name, sizes):
                self._set_flow(replace(self.world.flows[name], sizes=sizes))
            case ScaleTier():
                self._scale(action)
            case HoldBack(name, held_back):
                self._set_flow(replace(self.world.flows[name], held_back=held_back))
            case Show(name, node, worker):
                flow = self.world.flows[name]
                self._set_flow(replace(flow, hosted=flow.hosted | {(node, worker)}))
            case Hide(name, node, worker):
                flow = self.world.flows[name]
                self._set_flow(replace(flow, hosted=flow.hosted - {(node, worker)}))
            case NameGroup(name, tier, _):
                flow = self.world.flows[name]
                self._set_flow(replace(flow, tiers={**flow.tiers, tier: replace(flow.tiers[tier], names=None)}))
            case Ask(name, _, wanted):
                flow = self.world.flows[name]
                self._set_flow(replace(flow, wish=Wish(wanted.version, wanted.state, flow.wish.generation + 1)))
            case Advance(id_, operation):
                self.world = replace(self.world, workflows={key: each for key, each in self.world.workflows.items() if key != id_})
            case Tell(name, status) if name in self.world.held:
                self.world = replace(self.world, held={**self.world.held, name: replace(self.world.held[name], status=status)})
            case Tell(name, status):
                self._set_flow(replace(self.world.flows[name], status=status))
            case SetAside(name, spot):
                self._set_aside(name, spot)
            case Allot(name, share):
                self._set_flow(replace(self.world.flows[name], share=share))

    def _set_aside(self, name: str, spot: Spot[Any]) -> None:
        """It is not there any more."""
        flow = self.world.flows[name]
        self._set_flow(replace(flow, damaged=tuple(each for each in flow.damaged if each != spot)))
        tier = spot.path.split("/")[3] if spot.path != STATUS(name).path else ""
        match spot.kind:
            case kind if kind is Run:
                self._set_tier(replace(self._tier(tier), run=None))
            case kind if kind is TierWish:
                self._set_tier(replace(self._tier(tier), wish=None))
            case kind if kind is Report:
                self._set_tier(replace(self._tier(tier), report=None))
            case _:
                self._set_flow(replace(self.world.flows[name], status=None))

    def _tier(self, name: str) -> ObservedTier:
        return self.world.flows[self.flow].tiers[name]

    def _run(self, tier: str, *, spare: bool = False) -> RunId:
        run = self._tier(tier).spare if spare else self._tier(tier).run
        assert run is not None
        return RunId(self.flow, tier, run.number)

    def _node(self, tier: str, *, spare: bool) -> str:
        run = self._tier(tier).spare if spare else self._tier(tier).run
        assert run is not None
        return run.node

    def _set_run(self, tier: str, run: Run, *, spare: bool) -> None:
        self._set_tier(replace(self._tier(tier), spare=run) if spare else replace(self._tier(tier), run=run))

    def _set_flow(self, flow: FlowSeen) -> None:
        self.world = replace(self.world, flows={**self.world.flows, flow.name: flow})

    def _set_tier(self, tier: ObservedTier) -> None:
        flow = self.world.flows[self.flow]
        self._set_flow(replace(flow, tiers={**flow.tiers, tier.tier: tier}))

    def _set_process(self, id_: RunId, process: WorkerProcess) -> None:
        self.world = replace(self.world, processes={**self.world.processes, id_: process})


def _without_helpers(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if not is_helper(name))


def _tiers(text: str) -> dict[str, ObservedTier]:
    tiers: dict[str, ObservedTier] = {}
    for way in text.split(","):
        names = way.replace(" ", "").split("->")
        for at, name in enumerate(names):
            before = tiers.get(name, ObservedTier(name))
            tiers[name] = replace(before, feeders=before.feeders | set(names[at - 1 : at]))
    return tiers


def _said(action: Action) -> str:
    match action:
        case SetWorkerGoal(_, tier, wish) if wish.task:
            return f"> {tier} is wanted to do its part of operation {wish.task}, version {wish.version}, generation {wish.generation}"
        case SetWorkerGoal(_, tier, wish):
            return f"> {tier} is wanted {wish.goal}, version {wish.version}, generation {wish.generation}"
        case Start(_, tier, run, spare):
            return f"> start {tier}-{run.number} on {run.node}" + (", to wait" if spare else "")
        case Note(_, tier, run) if run.ended_at is not None:
            return f"> note {tier}-{run.number} has ended, failures {run.failures}" + (f": {run.cause}" if run.cause else "")
        case Note(_, tier, run) if not run.leased and run.unleased_since is not None:
            return f"> note {tier}-{run.number} is out of sight"
        case Note(_, tier, run) if not run.leased:
            return f"> note {tier}-{run.number} is the worker now, on {run.node}"
        case Note(_, tier, run):
            what = "has lost its lease" if run.unleased_since is not None else "holds the lease"
            return f"> note {tier}-{run.number} {what}"
        case FreeLease(id_):
            return f"> free the lease of {id_.tier}-{id_.number}"
        case Kill(id_, node, why):
            return f"> kill {id_.tier}-{id_.number} on {node}: {why}"
        case Forget(id_, node):
            return f"> forget {id_.tier}-{id_.number} on {node}"
        case Tell(name, status):
            refused = [f"refused: {path} {said['why']}" for path, said in status.refused.items()]
            return f"= {name} is {status.state}" + "".join(f"; {text}" for text in (status.reason, status.next, *refused) if text)
        case OperationStep(_, id_, operation):
            return f"> operation {id_} comes to {operation.step}" + (f": {operation.error}" if operation.error else "")
        case NoteSizes(_, sizes):
            said = [f"{tier}: {size.verdict}, {size.present} -> {size.executors}, {size.why}" for tier, size in sizes.tiers.items()]
            return f"> note sizes: {'; '.join(said)}"
        case ScaleTier(_, tier, version, _, change, _, partitions):
            spread = f", over {partitions} partitions first" if partitions else ""
            return f"> scale {tier} after version {version}, {change}{spread}"
        case HoldBack(_, held_back):
            shares = [f"{sink} by {hold.flow} to {hold.share:.0%}" for sink, hold in held_back.sinks.items()]
            return f"> hold back {', '.join(shares) or 'nothing'}"
        case Show(_, node, worker):
            return f"> show {worker} on {node}"
        case Hide(_, node, worker):
            return f"> show {worker} on {node} no more"
        case NameGroup(_, tier, name):
            return f"> {tier} runs on group {name.group}"
        case Ask(_, id_, wanted):
            return f"> operation w{id_} wants it {wanted.state}, for {wanted.by}"
        case Advance(id_, reached):
            return f"> operation w{id_} is {reached.step}" + (f": {reached.error}" if reached.error else "")
        case SetAside(_, spot):
            return f"> set aside {spot.path}"
        case Allot(_, share) if share.rows_per_s is None:
            return "> may read as fast as it can"
        case Allot(_, share):
            return f"> may read {share.rows_per_s:g} rows/s of quota {share.quota}" + (", as it is idle" if share.idle else "")


if __name__ == "__main__":
    print(Story().retell(Path(sys.argv[1]).read_text()), end="")
