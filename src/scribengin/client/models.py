"""Models of the REST API: one declaration for the server, its OpenAPI document and the client.

Annotations are read at run time, by FastAPI and msgspec.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scribengin.client.closed import CLOSED
from scribengin.client.workflow_models import WorkflowPart
from scribengin.registry.kinds import FlowState, Goal

FLOW_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
PACKAGE_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A flow in the list. `wanted` is its desired state, `state` its actual state: `created` before a master has reconciled it. `workflow`
    is the name of its workflow if it is connected to other flows, upstream or downstream; the list has it, events do not."""

    flow: str
    version: int
    wanted: Goal
    state: FlowState
    since: str
    reason: str
    next: str
    refused: Mapping[str, Any] = field(default_factory=dict)
    workflow: str = ""
    fed_by: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WantedState:
    """The desired state of a flow, who set it, and when. `revision` is that of the write; a status with this `generation` refers to it."""

    state: Goal
    version: int
    by: str = ""
    at: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """The status of a flow, as the leading master reports it."""

    state: FlowState
    since: str = ""
    reason: str = ""
    next: str = ""
    version: int = 0
    generation: int = 0
    goal: Goal | None = None
    refused: Mapping[str, Any] = field(default_factory=dict)
    """invalid record written by a person → its `version`, `why`, `remedy`"""


@dataclass(frozen=True, slots=True)
class TierProcess:
    """The holder of a tier's lease."""

    pid: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class StandbyRow:
    """A standby worker of a tier. `http` is the address of its status page, for its own host."""

    worker: str
    node: str
    state: str
    http: str = ""


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tier of a flow, and the worker that serves it. `ready`: each of its Queries has committed a Batch since the worker started, or has
    found nothing to read; null for a tier that the version does not have, or whose worker is of an earlier release. `failures` counts
    failures in a row without progress; `starts_again` is when the next worker starts, ISO 8601, null if none starts automatically. `http`
    is the address of the worker's status page, for its own host. `workers` is the number of workers of the tier, `each` for one on each
    host of its group, null for a helper; `wanted_workers` is the number desired now."""

    tier: str
    state: str
    worker: str | None = None
    node: str | None = None
    process: TierProcess | None = None
    failures: int = 0
    cause: str = ""
    remedy: str = ""
    starts_again: str | None = None
    standby: StandbyRow | None = None
    http: str = ""
    ready: bool | None = None
    workers: int | Literal["each"] | None = None
    wanted_workers: int = 0


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A folder that sinks of a flow's `tiers` write into. `writers` are all tiers that do, of other flows too; `node` is the host that
    maintains it, `since` when, and `keeper` the process that does it now. `looked_at` is its last reported maintenance run, `did_at` the
    last that had work: `folded` commit records and this number of unneeded `files`, with their `bytes`. `error`: why the last run failed.
    """

    path: str
    tiers: tuple[str, ...]
    writers: tuple[str, ...] = ()
    node: str = ""
    since: str = ""
    keeper: TierProcess | None = None
    looked_at: str = ""
    did_at: str = ""
    folded: int = 0
    files: int = 0
    bytes: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class NoticedRow:
    """A difference between the data of a source and its schema: a `new` column, a new `field` of objects, a column that is `missing`, one
    without a value in a file that has a field of nearly its name (`renamed`, `type` is that field) or in a whole Batch (`null`, with the
    number of `records`), or one whose values did not fit and became null (`nulled`, with the number of `records`); or a file that was
    written again and is read from its start (`again`). `file` and `line` say where it was first seen, `batch` in which Batch, `at` when
    that Batch was decided; `now` says how it is handled."""

    tier: str
    source: str
    column: str
    kind: str
    type: str = ""
    file: str = ""
    line: int | None = None
    batch: int = -1
    at: str = ""
    records: int = 0
    now: str = ""


@dataclass(frozen=True, slots=True)
class AcceptedRow:
    """Columns that a sink writes although its folder held others: all of them in `columns`, the others in `instead`, a sentence each;
    `readers`: what readers of the folder find; who agreed to it, and when."""

    tier: str
    sink: str
    columns: str = ""
    instead: tuple[str, ...] = ()
    readers: str = ""
    at: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class AckRow:
    """How far the Batches of a Query are acknowledged: committed, together with everything that downstream tiers made of them. Batches of
    its `lineage` are given by number, -1 for none, each with the time when it was decided; `read` and `released`: source → entries of its
    log that are decided, and that are acknowledged; `channels`: channel that it writes → the newest Batch that all readers have
    acknowledged."""

    tier: str
    query: str
    lineage: str
    decided: int = -1
    decided_at: str = ""
    acknowledged: int = -1
    acknowledged_at: str = ""
    read: Mapping[str, int] = field(default_factory=dict)
    released: Mapping[str, int] = field(default_factory=dict)
    channels: Mapping[str, int] = field(default_factory=dict)
    through: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """external source → (a moment, when all that was there at that moment was seen acknowledged), newest last"""


@dataclass(frozen=True, slots=True)
class FlowView:
    """All that the registry holds about a flow. `status` is null before a master has reconciled it."""

    flow: str
    wanted: WantedState
    status: FlowStatus | None
    tiers: tuple[TierRow, ...]
    noticed: tuple[NoticedRow, ...] = ()
    """for each tier the newest hundred"""
    accepted: tuple[AcceptedRow, ...] = ()
    set_aside: tuple[Mapping[str, str], ...] = ()
    """damaged records that were moved aside: `path`, `why`, and where each is `kept`"""
    folders: tuple[FolderRow, ...] = ()
    workflow: WorkflowPart | None = None
    """null if it is connected to no other flow"""
    acknowledged: tuple[AckRow, ...] = ()
    """by the workers that have reported it"""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of a tier, as its worker last wrote it, for the Batch that was then the newest decided one. `sources`: source → the labels of
    what it reads; `sinks`: sink → `unit`, `rows`, `bytes`; `position`: source → entries that are decided."""

    tier: str
    task: int
    query: str = ""
    batch: int = -1
    sources: Mapping[str, Any] = field(default_factory=dict)
    sinks: Mapping[str, Any] = field(default_factory=dict)
    owner: str = ""
    position: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version of a flow."""

    version: int
    wanted: bool
    package: str
    tiers: tuple[str, ...]
    by: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Submit:
    """A flow to be submitted: the package that was uploaded before, and the path of the flow file inside it. `base` is the folder where the
    relative paths of its data start, the same on every host."""

    package: str
    path: str
    base: str
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class SubmitFlow:
    """A flow to be submitted, as `Submit`; `plan` is the hash of the plan that was reviewed, `accept` and `columns` as in `Topology`."""

    package: str
    path: str
    base: str
    plan: str = ""
    accept: Literal["again", "lost"] | None = None
    columns: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class AppliedFlow:
    """The result of a submission. `changed` is false if the newest version is identical and its desired state already was running."""

    flow: str
    version: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Want:
    """The new desired state of a flow."""

    state: Goal
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Rollback:
    """An earlier version to return to, with the flows that were submitted as one with it, unless `only`. `accept` and `columns` as in
    `Topology`."""

    version: int
    only: bool = False
    accept: Literal["again", "lost"] | None = None
    columns: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class WentBack:
    """Flow → its desired version now, for all flows that changed."""

    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LogLines:
    """The last lines of a file: a worker's output, or a tier's run log."""

    tier: str
    file: str
    lines: tuple[str, ...]
    node: str = ""
    """the host that has it, if one was asked"""
    problem: str = ""
    """why there is nothing: the host does not answer"""


@dataclass(frozen=True, slots=True)
class PackageRow:
    """A package that this master has. `size` is in bytes."""

    id: str
    size: int


@dataclass(frozen=True, slots=True)
class RecordView:
    """A path in the registry. `value` is null if there is no record, or only a folder; `damaged` says why the record is invalid.

    `writable`: people may write it. `version` is to be sent back with a write that is based on this value.
    """

    path: str
    value: Mapping[str, Any] | None
    version: int
    changed: int
    children: tuple[str, ...]
    writable: bool
    damaged: str = ""


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """A record's new value; it is written only if the present record has this `version`, null if there must be none."""

    value: dict[str, Any]
    version: int | None = None
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Written:
    """A completed write. The state of the registry with this revision includes it; the write itself may have an earlier revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """The status of a flow after a change; `revision` is that of the change."""

    revision: int
    flow: FlowRow
