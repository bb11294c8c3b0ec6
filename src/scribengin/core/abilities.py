"""The abilities that a node type can declare: one table for the planner, the engine, the conformance suites and the documentation.

An ability without members is a promise about data, which the planner believes. One with members is also something to call: an object of the
type has these members if the type declares the ability, and only then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

Role = Literal["source", "sink"]
BuiltKind = Literal["source_module", "source", "reader", "sink_module", "sink", "stream"]
"""What has the members: the module that makes the sources, a built source, its reader; the module that makes the sinks, a built sink, its
stream."""

SOURCE: tuple[Role, ...] = ("source",)
SINK: tuple[Role, ...] = ("sink",)
BOTH: tuple[Role, ...] = ("source", "sink")


@dataclass(frozen=True, slots=True)
class Ability:
    """One row of the table. `meaning` is a clause about the type, for the documentation."""

    name: str
    roles: tuple[Role, ...]
    meaning: str
    members: Mapping[BuiltKind, tuple[str, ...]] = field(default_factory=dict)
    """kind of object → the attributes and methods that it has beside those that all of its kind have"""
    flag: str = ""
    """the member by which an object says whether it supports this itself, at its place and with its columns: False or None if not"""


def _table(*rows: Ability) -> Mapping[str, Ability]:
    return MappingProxyType({row.name: row for row in rows})


ABILITIES = _table(
    Ability("replayable", SOURCE, "it can deliver the same records again"),
    Ability("bounded", SOURCE, "the present data have an end, so `--once` ends"),
    Ability("static", SOURCE, "it can be read whole, beside a stream"),
    Ability("collected", SOURCE, "agents collect its records and send them over gateways"),
    Ability("may_repeat", SOURCE, "a record may reach it twice on its way from an agent"),
    Ability("may_lose", SOURCE, "records may be lost on their way from an agent, and are counted"),
    Ability("growing", SOURCE, "its files may grow"),
    Ability("timely", SOURCE, "a `split` sees all data from before its call"),
    Ability("lenient", SOURCE, "its decoders support `evolve: lenient`"),
    Ability("inferable", SOURCE, "`scribengin infer` can propose its schema from its `path`"),
    Ability("measures_backlog", SOURCE, "its backlog can be measured without reading it", {"reader": ("measure",)}),
    Ability("reports_position", SOURCE, "its reader tells the system how far the flow has committed", {"reader": ("committed",)}),
    Ability("holds_back", SOURCE, "its reader keeps others from deleting data that is not committed yet", {"reader": ("hold", "let_go")}),
    Ability("verifies", SOURCE, "its reader finds what was lost between the log and a restart", {"reader": ("verify",)}),
    Ability(
        "checks_columns",
        SOURCE,
        "its data declare their columns, which are compared with those of the flow before anything is read",
        {"source": ("check_first",), "reader": ("checks_first",)},
    ),
    Ability(
        "checks_keys", SOURCE, "a lookup table without a column that is read as a key is refused at the start", {"source": ("check_keys",)}
    ),
    Ability(
        "locates_records",
        SOURCE,
        "it can tell on which host, and where there, a record was first read",
        {"source": ("find_record", "locate_record")},
    ),
    Ability(
        "traces_origin", SOURCE, "its records are numbered, and may contain where they came from", {"source": ("numbers_of", "made_of")}
    ),
    Ability("handed_over", SOURCE, "another tier wrote its records, with their origin in each block", {"source": ("handed_over",)}),
    Ability("fills_for_tasks", SOURCE, "processes with another environment get values of this one", {"source_module": ("for_tasks",)}),
    Ability("exactly_once", SINK, "each Batch is published once"),
    Ability("append", SINK, "it takes rows that are only added"),
    Ability("update", SINK, "it takes rows that replace earlier ones with their key"),
    Ability("complete", SINK, "it takes the whole result of each Batch"),
    Ability("view", SINK, "it shows rows, and keeps none"),
    Ability("keeps_columns", SINK, "with `evolve: strict`, or CSV, a run does not start with another column than before"),
    Ability("chains_batches", SINK, "its place knows only its newest commits: each Batch records which it follows", {"sink": ("behind",)}),
    Ability(
        "commits_units",
        SINK,
        "the units of a Batch commit one by one, where the flow lets them",
        {"sink": ("units", "unit_stream", "behind")},
    ),
    Ability(
        "spark_writes",
        SINK,
        "with `delivery: at_least_once` a sink of Spark's own writes the rows",
        {"sink": ("format", "columns", "jars", "spark_options", "fault"), "stream": ("take",)},
    ),
    Ability("refuses_rows", SINK, "its place accepts or refuses rows one by one, after the decision", {"sink": ("on_error", "offer")}),
    Ability("compares_columns", SINK, "its place has columns of its own, which are compared before a start", {"sink": ("unlike",)}),
    Ability("buffers_batches", SINK, "it may keep published Batches while its place is unavailable", {"sink": ("upkeep",)}),
    Ability("finds_unaccounted", SINK, "an audit finds what others wrote at its place", {"sink": ("unaccounted",)}),
    Ability(
        "audited_in_state",
        SINK,
        "an audit reads only the flow's state about it, and never the place",
        {"sink": ("audited_in_state",)},
        flag="audited_in_state",
    ),
    Ability("traces_rows", SINK, "its rows contain their origin, and can be found by it", {"sink": ("places_of",)}),
    Ability(
        "restores_files",
        SINK,
        "its files that `reset` removed can be restored for a while",
        {"sink": ("restorable", "path", "move_away")},
        flag="restorable",
    ),
    Ability(
        "has_trash",
        SINK,
        "its place keeps what `reset` removed, and can restore it for a while",
        {"sink": ("restorable", "place", "move_to_trash", "check_back", "move_back", "drop_trash")},
        flag="restorable",
    ),
    Ability("masks", SINK, "it names the options whose values Spark must not show", {"sink": ("redacted",)}),
    Ability("runs_code", SINK, "its streams run functions of the flow's code", {"sink": ("load",)}),
    Ability(
        "takes_json", SINK, "its streams take rows as JSON, without Arrow", {"stream": ("json_needs", "write_json")}, flag="json_needs"
    ),
    Ability(
        "takes_origins",
        SINK,
        "its streams store where each row came from, as numbers",
        {"stream": ("wants_origins", "write_from")},
        flag="wants_origins",
    ),
    Ability(
        "checks_place",
        BOTH,
        "`validate --env` checks its place, and changes nothing",
        {"source": ("check_place",), "sink": ("check_place",)},
    ),
    Ability(
        "checks_local_place",
        BOTH,
        "`plan` reports what a run would refuse at its place, on this machine",
        {"source_module": ("check_source_place",), "sink_module": ("check_sink_place",)},
    ),
    Ability("table", BOTH, "it is the table that its `server`, `keyspace` and `table` name, and the rules for tables hold"),
    Ability("user_in_server", BOTH, "its `server` may contain a user"),
    Ability("no_place", BOTH, "it has no place outside of the flow"),
)
"""name → ability, those of sources first"""
_BY_KIND = {kind: [each for each in ABILITIES.values() if kind in each.members] for kind in get_args(BuiltKind)}


def has_members(built: object, ability: str, kind: BuiltKind) -> bool:
    """Whether a built object has the members of an ability. Runs no property, which may read the place."""
    row = ABILITIES[ability]
    for member in row.members[kind]:
        if not _has(built, member):
            return False
    return not row.flag or not _is_off(built, row.flag)


def supports(built: object, ability: str, kind: BuiltKind) -> bool:
    """Whether a built object supports an ability: it has the members, and its flag, if the ability has one, does not say otherwise."""
    flag = ABILITIES[ability].flag
    return has_members(built, ability, kind) and (not flag or getattr(built, flag) not in (None, False))


def ability_faults(declared: Collection[str], kind: BuiltKind, built: object, *, varying: Collection[str] = ()) -> Iterator[str]:
    """What an object of a node type has otherwise than the type declares, one clause each. Calls nothing of the object.

    Args:
        declared: The abilities of a node with these options: `NodeType.able`.
        kind: What `built` is.
        built: The object, or the module.
        varying: Those of `declared` that the object may lack: `NodeType.varying`.
    """
    called = kind.removeprefix("source_").removeprefix("sink_")
    for ability in _BY_KIND[kind]:
        name, members = ability.name, ability.members[kind]
        missing = [member for member in members if not _has(built, member)]
        if name in declared and missing and name not in varying:
            yield f'declares the ability "{name}", but its {called} has no `{missing[0]}`'
        elif name not in declared and not missing and not _is_off(built, ability.flag):
            yield f'does not declare the ability "{name}", but its {called} has `{"`, `".join(members)}`'


def _has(built: object, member: str) -> bool:
    return hasattr(type(built), member) or member in getattr(built, "__dict__", ())


def _is_off(built: object, flag: str) -> bool:
    """Whether the object lacks the ability by its flag; False if only a property knows."""
    return bool(flag) and getattr(built, "__dict__", {}).get(flag, getattr(type(built), flag, True)) in (None, False)
