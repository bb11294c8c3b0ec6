"""Abilities: a type declares them, its objects have their members, and the contract says what these do."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors import abilities, catalog, contract
from scribengin.connectors.contract import ConnectorContext
from scribengin.core.abilities import ABILITIES, ability_faults, has_members, supports
from scribengin.core.errors import DeclarationError
from scribengin.core.options import NodeType, Option

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOCOLS = {
    ("measures_backlog", "reader"): contract.MeasuringReader,
    ("reports_position", "reader"): contract.ReportingReader,
    ("holds_back", "reader"): contract.HoldingReader,
    ("verifies", "reader"): contract.VerifyingReader,
    ("checks_columns", "source"): contract.ColumnCheckingSource,
    ("checks_columns", "reader"): contract.ColumnCheckingReader,
    ("checks_keys", "source"): contract.KeyCheckingSource,
    ("traces_origin", "source"): contract.TracingSource,
    ("locates_records", "source"): contract.LocatingSource,
    ("handed_over", "source"): contract.HandedOverSource,
    ("chains_batches", "sink"): contract.ChainedSink,
    ("commits_units", "sink"): contract.UnitSink,
    ("spark_writes", "sink"): contract.SparkSink,
    ("spark_writes", "stream"): contract.RowStream,
    ("refuses_rows", "sink"): contract.OfferingSink,
    ("compares_columns", "sink"): contract.ComparingSink,
    ("buffers_batches", "sink"): contract.BufferingSink,
    ("finds_unaccounted", "sink"): contract.CountingSink,
    ("audited_in_state", "sink"): contract.StateAuditedSink,
    ("traces_rows", "sink"): contract.TracingSink,
    ("restores_files", "sink"): contract.RestorableSink,
    ("has_trash", "sink"): contract.TrashSink,
    ("masks", "sink"): contract.MaskingSink,
    ("runs_code", "sink"): contract.CodeSink,
    ("takes_json", "stream"): contract.JsonStream,
    ("takes_origins", "stream"): contract.OriginStream,
    ("checks_place", "source"): contract.PlaceChecking,
    ("checks_place", "sink"): contract.PlaceChecking,
}
MODULE_KINDS = ("source_module", "sink_module")
COMMON = (contract.SourceConnector, contract.SourceReader, contract.SinkConnector, contract.StagingSink, contract.SinkStream)


def members(protocol: type) -> set[str]:
    """What a Protocol has beside what all objects of its kind have."""
    own = {name for cls in protocol.__mro__ if cls not in COMMON for name in (*inspect.get_annotations(cls), *vars(cls))}
    of_all = {name for cls in COMMON for name in (*inspect.get_annotations(cls), *vars(cls))}
    return {name for name in own - of_all if not name.startswith("_")}


def test_each_ability_with_members_has_the_members_of_its_protocol() -> None:
    table = {(name, kind): set(of) for name, each in ABILITIES.items() for kind, of in each.members.items() if kind not in MODULE_KINDS}
    assert table == {key: members(protocol) for key, protocol in PROTOCOLS.items()} | {
        ("checks_keys", "source"): {"check_keys"},  # its Protocol has the method of `checks_columns` too
    }


def test_each_ability_that_objects_have_is_asked_by_a_function_of_its_name() -> None:
    tree = ast.parse(Path(abilities.__file__).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("supports", "has_members")]
    asked = {tuple(ast.literal_eval(each) for each in call.args[1:]) for call in calls}
    assert asked | {("checks_place", "source")} == set(PROTOCOLS)


def test_each_narrowing_function_is_used() -> None:
    package = Path(abilities.__file__).parents[1]
    texts = [path.read_text() for path in package.rglob("*.py") if path != Path(abilities.__file__)]
    names = [
        name for name, function in vars(abilities).items() if inspect.isfunction(function) and function.__module__ == abilities.__name__
    ]
    assert len(names) > 20
    assert not [name for name in names if not any(re.search(rf"\b{name}\(|\({name},", text) for text in texts)]


ASKED = re.compile(r'"(\w+)" (?:not )?in [^\n]*?(?:\.abilities\b|\.able\(|\btakes\b|\bgives\b)|(?:\.has|\.without)\(\w*,? ?"(\w+)"')


def test_each_ability_that_the_planner_asks_for_is_in_the_table() -> None:
    package = Path(abilities.__file__).parents[1]
    texts = [path.read_text() for floor in ("plan", "local", "spark", "connectors") for path in (package / floor).rglob("*.py")]
    asked = {one or other for text in texts for one, other in ASKED.findall(text)}
    assert {"replayable", "view", "commits_units", "table", "user_in_server", "checks_local_place"} <= asked  # the search finds them
    assert asked - set(ABILITIES) == set()


# --- declarations ---


def declare(*names: str, role: Any = "sink", options: tuple[Option, ...] = (), varying: tuple[str, ...] = ()) -> NodeType:
    return NodeType("tape", role, "A tape.", options, abilities=frozenset(names), varying=frozenset(varying))


def test_an_unknown_ability_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(DeclarationError) as told:
        declare("replayble", role="source")
    assert told.value.message == 'source type "tape" declares the unknown ability "replayble"'
    assert told.value.remedy == 'did you mean "replayable"?'
    assert told.value.code == "connector-declaration"


def test_an_ability_of_the_other_role_is_unknown() -> None:
    with pytest.raises(DeclarationError, match='sink type "tape" declares the unknown ability "replayable"'):
        declare("append", "replayable")


def test_an_unknown_ability_of_an_option_is_refused() -> None:
    option = Option("mode", "text", "how", "a", adds={"b": frozenset({"upsert"})})
    with pytest.raises(DeclarationError, match='"upsert"'):
        declare("append", options=(option,))


def test_what_varies_must_be_declared() -> None:
    with pytest.raises(DeclarationError, match='declares that "chains_batches" varies, which it does not declare'):
        declare("append", varying=("chains_batches",))


# --- objects ---


class Chained:
    def behind(self, units: int) -> dict[str, Any]:
        return {}


class Trash(Chained):
    place, asked = "here", 0

    @property
    def restorable(self) -> bool:
        type(self).asked += 1
        return False

    move_to_trash = check_back = move_back = drop_trash = Chained.behind


class NoTrash(Trash):
    restorable = False  # type: ignore[assignment]


def faults(built: object, *declared: str, kind: Any = "sink", varying: tuple[str, ...] = ()) -> list[str]:
    return list(ability_faults(declared, kind, built, varying=varying))


def test_a_declared_ability_has_its_members_and_an_undeclared_one_has_not() -> None:
    assert faults(Chained(), "append", "chains_batches") == []
    assert faults(object(), "chains_batches") == ['declares the ability "chains_batches", but its sink has no `behind`']
    assert faults(Chained(), "append") == ['does not declare the ability "chains_batches", but its sink has `behind`']
    assert faults(object(), "chains_batches", varying=("chains_batches",)) == []


def test_a_property_is_not_run_by_the_check() -> None:
    assert len(faults(Trash(), "chains_batches", "has_trash")) == 0
    assert has_members(Trash(), "has_trash", "sink")
    assert Trash.asked == 0
    assert not supports(Trash(), "has_trash", "sink")
    assert Trash.asked == 1


def test_an_object_that_is_never_able_needs_no_declaration() -> None:
    assert faults(NoTrash(), "chains_batches") == []
    assert faults(Trash(), "chains_batches") == [
        'does not declare the ability "has_trash", but its sink has '
        "`restorable`, `place`, `move_to_trash`, `check_back`, `move_back`, `drop_trash`"
    ]


# --- connectors of other packages ---

CONNECTOR = """
from scribengin.core.options import NodeType

SINK = NodeType("tape", "sink", "A tape.", (), abilities=frozenset({ABILITIES}))


class TapeSink:
    exactly_once = False
    METHODS


def make_sink(place):
    return TapeSink()
"""
UNLIKE = "def unlike(self, schema): return []"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    about = tmp_path / "scribengin_tape-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: scribengin-tape\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[scribengin.connectors]\ntape = tape_of_abilities\n")
    monkeypatch.syspath_prepend(tmp_path)

    def installed(declared: str, methods: str = "", more: str = "") -> None:
        import sys

        (tmp_path / "tape_of_abilities.py").write_text(CONNECTOR.replace("ABILITIES", declared).replace("METHODS", methods) + more)
        monkeypatch.delitem(sys.modules, "tape_of_abilities", raising=False)
        catalog._modules.cache_clear()

    yield installed
    catalog._modules.cache_clear()


def opened(tmp_path: Path) -> Any:
    return catalog.open_sink("tape", ConnectorContext("out", tmp_path))


def test_a_connector_that_declares_an_unknown_ability_is_not_loaded(install: Any) -> None:
    install('"append", "compares_colums"')
    with pytest.raises(DeclarationError) as told:
        catalog.sink_types()
    assert told.value.message == 'sink type "tape" declares the unknown ability "compares_colums"'
    assert told.value.remedy == 'did you mean "compares_columns"?'
    assert told.value.code == "connector-declaration"


def test_a_connector_whose_sink_lacks_what_it_declares_is_not_used(install: Any, tmp_path: Path) -> None:
    install('"append", "compares_columns"', UNLIKE)
    assert abilities.compares_columns(opened(tmp_path))
    install('"append", "compares_columns"', UNLIKE.replace("unlike", "unlik"))
    with pytest.raises(DeclarationError) as told:
        opened(tmp_path)
    assert told.value.message == 'sink type "tape" declares the ability "compares_columns", but its sink has no `unlike`'


def test_a_connector_whose_sink_has_what_it_does_not_declare_is_not_used(install: Any, tmp_path: Path) -> None:
    install('"append"', UNLIKE)
    with pytest.raises(DeclarationError) as told:
        opened(tmp_path)
    assert told.value.message == 'sink type "tape" does not declare the ability "compares_columns", but its sink has `unlike`'


def test_a_module_has_the_functions_that_its_type_declares_and_no_others(install: Any) -> None:
    install('"append", "checks_local_place"', more="\ndef check_sink_place(place, claimant): return True\n")
    assert "tape" in catalog.sink_types()
    install('"append", "checks_local_place"')
    with pytest.raises(DeclarationError, match='declares the ability "checks_local_place", but its module has no `check_sink_place`'):
        catalog.sink_types()
    install('"append"', more="\ndef check_sink_place(place, claimant): return True\n")
    with pytest.raises(DeclarationError, match='does not declare the ability "checks_local_place"'):
        catalog.sink_types()


# --- the page for authors ---

PAGE = Path(__file__).parents[2] / "docs" / "connectors.md"
TITLES = {("source",): "of a source", ("sink",): "of a sink", ("source", "sink"): "of both"}


def listed(roles: tuple[str, ...]) -> str:
    """The table of the abilities of these roles, as the page has it."""
    lines = [f"| {TITLES[roles]} | | members |", "|---|---|---|"]
    for ability in (each for each in ABILITIES.values() if each.roles == roles):
        by_object: dict[str, list[str]] = {}
        for kind, of in ability.members.items():
            by_object.setdefault("module" if kind in MODULE_KINDS else kind, []).extend(f"`{member}`" for member in of)
        have = "; ".join(f"{kind}: {', '.join(of)}" for kind, of in by_object.items())
        lines.append(f"| `{ability.name}` | {ability.meaning} | {have} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("roles", TITLES, ids=TITLES.values())
def test_the_page_for_authors_lists_each_ability_as_the_table_has_it(roles: tuple[str, ...]) -> None:
    assert f"\n{listed(roles)}\n" in PAGE.read_text()


def test_each_ability_is_in_one_of_the_lists() -> None:
    assert {each.roles for each in ABILITIES.values()} == set(TITLES)
