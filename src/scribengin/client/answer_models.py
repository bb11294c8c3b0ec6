"""What the REST API says of the state of a flow, its records, and its graph; as `models`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scribengin.client.closed import CLOSED


@dataclass(frozen=True, slots=True)
class LetterCount:
    """So many records that a step could not handle for one reason; with the key and the message of the first, and where it stood. Of
    them `replayed` have come through again, `asked` wait for that, `repaired` wait to be asked for. `first` and `last`: when the Batches
    were decided. `gone`: no sink of the flow makes the Query any more; what was asked waits until one does."""

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
    """The dead letters of a flow, `dead` in all."""

    flow: str
    dead: int
    groups: tuple[LetterCount, ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that a step could not handle. `place` is where it stood, for people; `record` what it is called in all tiers, `trail` the
    way it came. `payload` are its bytes, `payload_base64` where they are no UTF-8; both are null where they are withheld.
    `came` is the row that came to the step, where that is known. `key` names it in its `lineage`; `state` says what was done with it; the
    letter that it was before a replay is `replay_of`."""

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
    """Letters, those of the oldest Batch first; `after` asks for the next page, and is empty where there is none. `withheld`: who asks may
    not see the bytes of records."""

    flow: str
    letters: tuple[Letter, ...]
    after: str
    withheld: bool


@dataclass(frozen=True, slots=True)
class ReplayLetters:
    """Which letters to replay, as they are chosen for a page; `repaired` are the lines of a file that was exported: only those.
    `from_start`: through all steps again; `as_is`: as they died; `dry_run`: only tell."""

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
    """What was asked for: `replayed` letters, at the places `entering`; `already` were before; `refused` stay, and `refusals` say why.
    `late`: how many are behind the `watermark` of their `query` now, and would come back as letters."""

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
    """The letter whose id, or key, is `letter`, or begins so, is repaired: other values of columns (JSON, or else text), or all of it as
    text; `query`: for that one only. `from_start`: what its source gave, also where the row that came to its step is known. `digest`: only
    if it still is the letter, with the text, that an answer with this digest has told."""

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
    """The letter `id` was repaired for `queries`, none where nothing was changed; it enters `at` a step, or its source. `text` is what it
    was before (`text_base64` where that is no UTF-8), `digest` one of letter and text; `row`: a row as JSON."""

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
    """Which letters to delete, as they are chosen for a page; with `replayed` those that have come through again. `dry_run`: only tell."""

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
    """So many were deleted, or would be; `unreplayed` of them had not come through again. `queries`: Query → how many. `trash`: the `id`
    by which they can be brought back, and `until` when; null where nothing was deleted."""

    flow: str
    purged: int
    unreplayed: int
    queries: Mapping[str, int]
    dry_run: bool
    trash: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class UndoPurge:
    """The purge whose letters are to be brought back, by its `id`; empty for the newest."""

    id: str = ""
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class PurgeUndone:
    """So many letters that the purge `id` had deleted are back; `expired` more have outlived `retain`. `queries`: Query → how many."""

    flow: str
    id: str
    restored: int
    expired: int
    queries: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Way:
    """What became of a record: docs/json.md, `scribengin trace`."""

    flow: str
    record: str
    trace: float
    arrivals: tuple[Mapping[str, Any], ...]
    dead: tuple[Mapping[str, Any], ...]
    read: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    came: tuple[Mapping[str, Any], ...] = ()
    """the `source` by which it came, of which `flow`, and the `record` that it was made of there"""
    went: tuple[Mapping[str, Any], ...] = ()
    """the `place` of each row that it became in the sink of a Batch; `readers`: `flow` and `record` of those that read it there"""


@dataclass(frozen=True, slots=True)
class Audit:
    """Outputs, dead letters and ledger, read again: docs/json.md, `scribengin audit`."""

    flow: str
    state: str
    folder: str
    queries: tuple[Mapping[str, Any], ...]
    channels: tuple[Mapping[str, Any], ...]
    ledger: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A source, a step (`kind` is what it does) or a sink; `live` how it goes, null where nobody says so; `stateful` a step that keeps
    something between Batches."""

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
    """A tier, who serves it, and how that stands."""

    tier: str
    group: str | None
    queries: tuple[str, ...]
    worker: str | None = None
    state: str = ""


@dataclass(frozen=True, slots=True)
class GraphChannel:
    """What lies between two tiers, with every property; `live` what waits in it, and how fast it comes and goes."""

    channel: str
    reading: str
    feeding: str
    place: str
    properties: Mapping[str, str]
    live: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An arrow: `reads` may be `step.branch`; `channel` is what it goes through, null inside a tier."""

    node: str
    reads: str
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """A flow's nodes, arrows, tiers and channels, as the version that is wanted has them; `mermaid` is a picture of it."""

    flow: str
    version: int
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    tiers: tuple[GraphTier, ...]
    channels: tuple[GraphChannel, ...]
    mermaid: str
    told: bool = field(default=False)
    """whether workers have said how it goes"""


@dataclass(frozen=True, slots=True)
class GraphCounts:
    """What passed in the last run of a flow: `batches` of it, the last decided at `last`; `caption` says so. `nodes` have `node`, `in`,
    `dropped`, `dead`, `late`, `held` and `run`, the steps that are counted with it; `edges` have `reads`, `node` and `rows`, as text."""

    batches: int
    last: str
    caption: str
    nodes: tuple[Mapping[str, Any], ...]
    edges: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The table of one summary sink: `rows_in` rows from Batch `since_batch` to `batch` (null for none yet), in `groups` groups.

    `since`: when what it counts began; null where it counts all that ever came to the sink.
    `left_out`: there were more than `keep` groups; those that are kept are whole, and `rows_left_out` rows are of others."""

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
    """Those of a flow."""

    flow: str
    summaries: tuple[Summary, ...]
