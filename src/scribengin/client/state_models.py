"""Models of the REST API for the state of a flow, its records, and its graph; see also `models`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scribengin.client.models import CLOSED


@dataclass(frozen=True, slots=True)
class LetterCount:
    """The number of records that a step could not process for one reason, with the key and message of the first, and its place in the flow.
    Of them, `replayed` were processed again successfully, `asked` wait to be replayed after a request, and `repaired` wait for such a
    request. `first` and `last`: when the Batches were decided. `gone`: no sink of the flow uses the query any more; requested replays wait
    until one does."""

    query: str
    step: str
    reason: str
    count: int
    example: str
    place: str
    replayed: int = 0
    repaired: int = 0
    first: str = ""
    last: str = ""
    asked: int = 0
    gone: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True)
class LetterCounts:
    """The dead letters of a flow, `dead` in total."""

    flow: str
    dead: int
    groups: tuple[LetterCount, ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that a step could not process. `place` is its place in the flow, for people; `record` its id in all tiers, `trail` its
    provenance. `payload` are its bytes, `payload_base64` if they are not UTF-8; both are null if they are withheld. `came` is the input row
    of the step, if known. `key` identifies it in its `lineage`; `state` says what was done with it. `replay_of` is the dead letter that it
    was before a replay."""

    id: str
    query: str
    batch: int
    step: str
    reason: str
    message: str
    place: str
    source: str = ""
    file: str = ""
    line: int | None = None
    row: int | None = None
    offset: int | None = None
    exception: str = ""
    code_line: str = ""
    truncated: bool = False
    record: str = ""
    trail: tuple[Mapping[str, Any], ...] = ()
    payload: str | None = None
    payload_base64: str | None = None
    key: str = ""
    lineage: str = ""
    state: str = ""
    came: str = ""
    form: str = ""
    alone: bool = False
    way: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    replays: int = 0
    replay_of: str = ""
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Dead letters, those of the oldest Batch first; pass `after` to get the next page; it is empty on the last page. `withheld`: the
    caller may not see the bytes of records."""

    flow: str
    letters: tuple[Letter, ...]
    after: str
    withheld: bool


@dataclass(frozen=True, slots=True)
class ReplayLetters:
    """Which dead letters to replay, selected as for a page; `repaired` are the lines of an exported file: only those are replayed.
    `from_start`: through all steps again; `as_is`: unchanged; `dry_run`: report only."""

    query: str = ""
    step: str = ""
    reason: str = ""
    prefix: str = ""
    since: str = ""
    until: str = ""
    from_start: bool = False
    as_is: bool = False
    dry_run: bool = False
    repaired: str | None = None
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class LettersReplayed:
    """The replays that were requested: `replayed` dead letters, at the steps `entering`; `already` were requested before; `refused` stay,
    and `refusals` say why. `late`: how many are behind the current `watermark` of their `query`, and would become dead letters again."""

    flow: str
    dry_run: bool
    replayed: int
    repaired: int
    already: int
    refused: int
    refusals: tuple[Mapping[str, str], ...]
    entering: tuple[Mapping[str, Any], ...]
    requests: tuple[str, ...]
    running: bool
    late: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class RepairLetter:
    """Repair the dead letter whose id or key is `letter` or has this prefix: with other values of columns (JSON, or else text), or with
    another text as a whole; `query`: in this query only. `from_start`: repair what its source delivered, even if the input row of the step
    is known. `digest`: only if the dead letter and its text still match the answer that had this digest."""

    letter: str
    query: str = ""
    from_start: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None
    text_base64: str | None = None
    digest: str = ""
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class LetterRepaired:
    """The dead letter `id` was repaired for `queries`, none if nothing was changed; it enters at the step or source `at`. `text` is the
    text before the repair (`text_base64` if it is not UTF-8), `digest` that of the dead letter and its text; `row`: a row as JSON."""

    flow: str
    id: str
    at: str
    queries: tuple[str, ...]
    row: bool
    digest: str
    text: str | None = None
    text_base64: str | None = None


@dataclass(frozen=True, slots=True)
class PurgeLetters:
    """Which dead letters to delete, selected as for a page; with `replayed`, those that were processed again. `dry_run`: report only."""

    query: str = ""
    step: str = ""
    reason: str = ""
    prefix: str = ""
    since: str = ""
    until: str = ""
    replayed: bool = False
    dry_run: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class LettersPurged:
    """The number of dead letters that were deleted, or would be; `unreplayed` of them were not processed again. `queries`: query → count.
    `trash`: the `id` with which they can be restored, and `until` when; null if nothing was deleted."""

    flow: str
    purged: int
    unreplayed: int
    queries: Mapping[str, int]
    dry_run: bool
    trash: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class UndoPurge:
    """The purge whose dead letters are to be restored, by its `id`; empty for the newest."""

    id: str = ""
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class PurgeUndone:
    """The number of dead letters of the purge `id` that were restored; `expired` more are older than `retain`. `queries`: query → count."""

    flow: str
    id: str
    restored: int
    expired: int
    queries: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Way:
    """The outcome of a record: docs/json.md, `scribengin trace`."""

    flow: str
    record: str
    trace: float
    arrivals: tuple[Mapping[str, Any], ...]
    dead: tuple[Mapping[str, Any], ...]
    read: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    came: tuple[Mapping[str, Any], ...] = ()
    """the `source` that read it, in which `flow`, and the `record` there from which it was made"""
    went: tuple[Mapping[str, Any], ...] = ()
    """the `place` of each row that it became in the sink of a Batch; `readers`: `flow` and `record` of those that read it there"""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of reading outputs, dead letters and ledger again: docs/json.md, `scribengin audit`."""

    flow: str
    state: str
    folder: str
    queries: tuple[Mapping[str, Any], ...]
    channels: tuple[Mapping[str, Any], ...]
    ledger: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A source, a step (`kind` is its type) or a sink; `live` its current figures, null if unknown; `stateful` a step that keeps state
    between Batches."""

    node: str
    kind: str
    about: str
    tiers: tuple[str, ...]
    queries: tuple[str, ...]
    stage: str | None = None
    group: str | None = None
    live: Mapping[str, Any] | None = None
    stateful: bool = False


@dataclass(frozen=True, slots=True)
class GraphTier:
    """A tier, the worker that serves it, and its status."""

    tier: str
    group: str | None
    queries: tuple[str, ...]
    worker: str | None = None
    state: str = ""


@dataclass(frozen=True, slots=True)
class GraphChannel:
    """The channel between two tiers, with all its properties; `live` its backlog, and how fast it is filled and emptied."""

    channel: str
    reading: str
    feeding: str
    place: str
    properties: Mapping[str, str]
    live: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An arrow: `reads` may be `step.branch`; `channel` is the channel that it goes through, null inside a tier."""

    node: str
    reads: str
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """A flow's nodes, arrows, tiers and channels, in the desired version; `mermaid` is a picture of it."""

    flow: str
    version: int
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    tiers: tuple[GraphTier, ...]
    channels: tuple[GraphChannel, ...]
    mermaid: str
    told: bool = field(default=False)
    """whether workers have reported live figures"""


@dataclass(frozen=True, slots=True)
class GraphCounts:
    """The rows that passed in the last run of a flow: `batches` of it, the last decided at `last`; `caption` says so in words. `nodes` have
    `node`, `in`, `dropped`, `dead`, `late`, `held` and `run`, the steps that are counted with it; `edges` have `reads`, `node` and `rows`,
    as text."""

    batches: int
    last: str
    caption: str
    nodes: tuple[Mapping[str, Any], ...]
    edges: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The table of one summary sink: `rows_in` rows from Batch `since_batch` to `batch` (null if there is none yet), in `groups` groups.

    `since`: when counting started; null if it counts all rows that ever reached the sink. `left_out`: there were more than `keep` groups;
    the kept groups are complete, and `rows_left_out` rows belong to others.
    """

    sink: str
    query: str
    format: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    batch: int | None
    since_batch: int
    since: str | None
    decided_at: str
    rows_in: int
    groups: int
    keep: int
    left_out: bool
    rows_left_out: int


@dataclass(frozen=True, slots=True)
class Summaries:
    """The summaries of a flow."""

    flow: str
    summaries: tuple[Summary, ...]


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A decided Batch of a query. `dead` counts its dead letters; null while a store may still refuse rows, which are then part of
    `rows_out`. `published`: its output is known to be visible to readers.

    `phases_s`: the seconds of its phases plan, process, decide and publish. `state_rows`, `state_bytes`: the state of the query after it.
    They are recorded with the following Batch: null for the newest one, and for one after which another process continued. `watermark`: the
    one under which the Batch ran; null if it had none.
    """

    tier: str
    query: str
    batch: int
    decided_at: str
    rows_in: int
    rows_out: int
    dead: int | None
    published: bool
    phases_s: Mapping[str, float] | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    watermark: str | None = None


@dataclass(frozen=True, slots=True)
class Batches:
    """The last Batches of a flow, newest first."""

    flow: str
    batches: tuple[BatchRow, ...]


@dataclass(frozen=True, slots=True)
class BatchView:
    """One decided Batch, with its decision; for the first fields see BatchRow.

    `sources`: the entries of each source's log that it took, `start` to `end` (exclusive). `nodes`: the ledger of the Batch, as in `audit`.
    `receipts`: one for each task output at each sink, with its rows, bytes and the sink's own `segments`. `dead_segments`: the files of its
    dead letters. `plan` and `input_hash` identify the plan and the input; `host` ran it, with `workers` workers.
    """

    flow: str
    tier: str
    query: str
    batch: int
    decided_at: str
    rows_in: int
    rows_out: int
    dead: int | None
    published: bool
    phases_s: Mapping[str, float] | None
    state_rows: int | None
    state_bytes: int | None
    watermark: str | None
    term: int
    lineage: str
    host: str
    workers: int
    plan: str
    input_hash: str
    sources: tuple[Mapping[str, Any], ...]
    nodes: tuple[Mapping[str, Any], ...]
    receipts: tuple[Mapping[str, Any], ...]
    dead_segments: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class NodeSample:
    """What a node of a flow makes of a sample: `node` is as in `preview --json`. `problems` have `severity`, `code`, `line`, `column`,
    `message` and `remedy`."""

    flow: str
    node: Mapping[str, Any]
    problems: tuple[Mapping[str, Any], ...]
