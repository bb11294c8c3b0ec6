"""What the REST API says and takes: one declaration for the server, its OpenAPI document and the client.

Annotations are looked at when the program runs, by FastAPI and msgspec.
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
    """A flow in the list. `wanted` is the goal, `state` how it stands: `created` where no master has looked at it yet. `workflow` is the
    name of its workflow where it meets other flows, with those that feed it and those it feeds; the list says it, events do not."""

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
    """What is wanted of a flow, and who wanted it when. `revision` is that of the write: a status whose `generation` it is speaks of it."""

    state: Goal
    version: int
    by: str = ""
    at: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """How a flow stands, as the leading master says."""

    state: FlowState
    since: str = ""
    reason: str = ""
    next: str = ""
    version: int = 0
    generation: int = 0
    goal: Goal | None = None
    refused: Mapping[str, Any] = field(default_factory=dict)
    """record that a person wrote and that cannot be → `version` of it, `why`, `remedy`"""


@dataclass(frozen=True, slots=True)
class TierProcess:
    """Who holds a tier's lease."""

    pid: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class StandbyRow:
    """A worker that waits to take a tier over. `http` is the address of its page, for its own host."""

    worker: str
    node: str
    state: str
    http: str = ""


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tier of a flow, and the worker that serves it. `ready`: each of its Queries has committed a Batch since the worker started, or has
    found nothing to read; null of a tier that the version does not have, or whose worker is of an earlier release. `failures` are ends in
    a row without progress; `starts_again` is when the next worker starts, ISO 8601, null where none does by itself. `http` is the address
    of the worker's page, for its own host. `workers` is how many the tier has, `each` for one on each host of its group, null of a helper;
    `wanted_workers` how many of them are wanted now."""

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
    """A folder that sinks of a flow's `tiers` write into. `writers` are all tiers that do, of other flows too; `node` the host that got
    its upkeep, `since` when, and `keeper` the process that does it now. `looked_at` is its last turn that was told, `did_at` the last that
    had something to do: `folded` commit records, and so many `files` that nobody needs, with their `bytes`. `error`: why the last turn
    failed."""

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
    """What the data of a source have that its schema has not: a `new` column, a new `field` of objects, a column that is `missing`, one
    without a value in a file that has a field of nearly its name (`renamed`, `type` is that field) or in a whole Batch (`null`, of so many
    `records`), or one whose values did not fit and became null (`nulled`, so many `records`); or a file that was written again and is read
    from its start (`again`). `file` and `line` say where it was seen
    first, `batch` in which Batch, `at` when that was decided; `now` what becomes of it."""

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
    """Columns with which a sink goes on though its folder held others: all of them in `columns`, the others in `instead`, a sentence each;
    `readers`: what those who read the folder meet; who has agreed, and when."""

    tier: str
    sink: str
    columns: str = ""
    instead: tuple[str, ...] = ()
    readers: str = ""
    at: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class AckRow:
    """How far the Batches of a Query are acknowledged: committed, with all that the tiers behind made of them. Of its `lineage`, by number,
    -1 for none, each with when it was decided; `read` and `released`: source → entries of its log that are decided, and that are
    acknowledged; `channels`: channel that it feeds → the newest Batch that all readers have acknowledged."""

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
    """source from outside → (a moment, when all that was there at that moment was seen acknowledged), the newest last"""


@dataclass(frozen=True, slots=True)
class FlowView:
    """All that the registry says of a flow. `status` is null where no master has looked at it yet."""

    flow: str
    wanted: WantedState
    status: FlowStatus | None
    tiers: tuple[TierRow, ...]
    noticed: tuple[NoticedRow, ...] = ()
    """of each tier the newest hundred"""
    accepted: tuple[AcceptedRow, ...] = ()
    set_aside: tuple[Mapping[str, str], ...] = ()
    """damaged records that were moved out of the way: `path`, `why`, and where each is `kept`"""
    folders: tuple[FolderRow, ...] = ()
    workflow: WorkflowPart | None = None
    """null where it meets no other flow"""
    acknowledged: tuple[AckRow, ...] = ()
    """by workers that have said it"""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of a tier, as its worker wrote it last: of the newest Batch that was decided then. `sources`: source → the labels of what it
    reads; `sinks`: sink → `unit`, `rows`, `bytes`; `position`: source → entries that are decided."""

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
    relative paths of its data start, on every host the same."""

    package: str
    path: str
    base: str
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class SubmitFlow:
    """A flow to be submitted, as `Submit`; `plan` is the hash of the plan that was looked at, `accept` and `columns` as in
    `Topology`."""

    package: str
    path: str
    base: str
    plan: str = ""
    accept: Literal["again", "lost"] | None = None
    columns: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class AppliedFlow:
    """What came of a submission. `changed` is false where the newest version is just this, and wanted to run."""

    flow: str
    version: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Want:
    """What is wanted of a flow now."""

    state: Goal
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Rollback:
    """Another version that there was; with the flows that were submitted as one with it, unless `only`. `accept` and `columns` as in
    `Topology`."""

    version: int
    only: bool = False
    accept: Literal["again", "lost"] | None = None
    columns: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class WentBack:
    """Flow → the version that is wanted of it now, of all that changed."""

    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LogLines:
    """The last lines of a file: what a worker has printed, or a tier's run log."""

    tier: str
    file: str
    lines: tuple[str, ...]
    node: str = ""
    """the host that it lies on, where that was asked"""
    problem: str = ""
    """why there is nothing: the host does not answer"""


@dataclass(frozen=True, slots=True)
class PackageRow:
    """A package that this master has. `size` is in bytes."""

    id: str
    size: int


@dataclass(frozen=True, slots=True)
class RecordView:
    """A place in the registry. `value` is null where nothing is, or only a folder; `damaged` says why what is there is no record.

    `writable`: people may write it. `version` is to be sent back with a write that is made from this.
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
    """A record's new value; only while what is there has this `version`, null where nothing may be there."""

    value: dict[str, Any]
    version: int | None = None
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Written:
    """A write that was done. The state of the registry with this revision has it; the write itself may be an earlier one."""

    revision: int


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """A flow as it stands after a change; `revision` is that of the change."""

    revision: int
    flow: FlowRow
