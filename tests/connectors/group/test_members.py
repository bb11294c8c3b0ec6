"""Which sinks can go to a group: each type of the catalog says either which option `at` of a member gives, or why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors import catalog
from scribengin.core.errors import InputError
from scribengin.core.options import NodeType, Option
from scribengin.local.prepare import open_sinks, prepare
from scribengin.plan.maintained_places import kept_stores, kept_tables

if TYPE_CHECKING:
    from pathlib import Path

TYPES = sorted(catalog.sink_types())
ABLE = [type_ for type_ in TYPES if catalog.sink_types()[type_].by_member is not None]
ALONE = [(type_, o.name, v) for type_ in ABLE for o in catalog.sink_types()[type_].options for v in o.alone]
AT = {
    "files": ("/mnt/a", "/mnt/b"),
    "delta": ("/mnt/a", "s3://shop-b/lake"),
    "kafka": ("b1:9092", "b2:9092,b3:9092"),
    "objects": ("s3://shop-a/orders", "s3://shop-b/orders"),
    "hdfs": ("hdfs://n1:8020/orders", "hdfs://n2:8020/orders"),
    "postgres": ("postgresql://etl@db1/shop", "postgresql://etl@db2:5433/shop"),
    "cassandra": ("c1:9042,c2", "d1"),
    "hbase": ("http://h1:8080", "thrift://h2:9090"),
    "opensearch": ("http://s1:9200,http://s2:9200", "https://t1:9200"),
    "http": ("https://api1.example.com/orders/{id}", "https://api2.example.com/orders/{id}"),
    "elasticsearch": ("http://s1:9200", "https://t1:9200"),
}
"""of each type two places"""
BESIDE = {
    "kafka": {"topic": "t"},
    "upsert": {"key": "[id]"},
    "changes": {"key": "[id]", "change": "op"},
    "overwrite": {"partition_by": "[id]"},
}
"""what a type, or a value, needs besides"""
FLOW = """
version: 1
name: grouped
sources: {rows: {type: sequence}}
sinks:
  kept: {from: rows, delivery: DELIVERY, type: TYPE, to: places, OPTIONS}
groups:
  places:
    members:
    - {at: "AT0"}
    - {at: "AT1"}
"""
MEMBER_LINE = 10
"""of the first one"""


def flow(tmp_path: Path, type_: str, *, at: tuple[str, ...] = (), **beside: str) -> Path:
    declared = catalog.sink_types()[type_]
    named = declared.by_member
    own = {o.name: o.example for o in declared.options if o.required and (o is not named or o.kind == "path")}
    own |= BESIDE.get(type_, {})
    options = ", ".join(f"{name}: {value}" for name, value in (own | beside).items())
    delivery = "exactly_once" if "exactly_once" in declared.abilities else "at_least_once"
    path = tmp_path / "flow.yaml"
    text = FLOW.replace("TYPE", type_).replace("OPTIONS", options).replace("DELIVERY", delivery)
    for nth, each in enumerate(at or AT.get(type_, ("b1:9092", "b2:9092"))):
        text = text.replace(f"AT{nth}", each)
    path.write_text(text)
    return path


def problems(path: Path) -> list[Any]:
    with pytest.raises(InputError) as told:
        prepare(path, state=None)
    return [problem for problem in told.value.problems if problem.code.startswith(("group-", "secret-"))]


def opened(path: Path) -> Any:
    (tier,) = prepare(path, state=None).tiers
    return open_sinks(tier.plan.flow)["kept"]


def test_there_is_a_place_to_try_for_each_type_that_can() -> None:
    assert sorted(AT) == ABLE


@pytest.mark.parametrize("type_", TYPES)
def test_each_type_says_why_it_cannot_or_where_its_members_are_and_never_both(type_: str) -> None:
    declared = catalog.sink_types()[type_]
    assert bool(declared.alone) == (declared.by_member is None)
    if declared.by_member is None:
        assert not any(option.alone for option in declared.options)


@pytest.mark.parametrize("type_", [type_ for type_ in TYPES if type_ not in ABLE])
def test_a_sink_that_cannot_is_refused_at_its_line_with_why_and_with_what_can(tmp_path: Path, type_: str) -> None:
    (problem,) = problems(flow(tmp_path, type_))
    assert (problem.code, problem.place.line) == ("group-sink", 6)
    assert f"a sink of type {type_} cannot go to a group: {catalog.sink_types()[type_].alone}" in problem.message
    assert "take `to` out" in problem.remedy
    assert "files, " in problem.remedy


def test_a_type_that_says_nothing_cannot() -> None:
    declared = NodeType("strange", "sink", "A sink.", (Option("place", "text", "where"),))
    assert declared.kept_alone({}) == (None, "its connector does not define the option that `at` of a member sets")


@pytest.mark.parametrize("type_", ABLE)
def test_a_sink_that_can_has_all_that_a_group_asks_of_a_member(tmp_path: Path, type_: str) -> None:
    for member in opened(flow(tmp_path, type_))._sinks.values():
        assert member.exactly_once == ("exactly_once" in catalog.sink_types()[type_].abilities)
        for needed in ("check_ready", "prepare", "recover", "publish", "audit", "clear", "stream"):
            assert callable(getattr(member, needed, None)), needed


@pytest.mark.parametrize("type_", ABLE)
def test_members_write_to_places_of_their_own(tmp_path: Path, type_: str) -> None:
    (tier,) = prepare(flow(tmp_path, type_), state=None).tiers
    declared = catalog.sink_types()[type_].by_member
    assert declared is not None
    from scribengin.local.prepare import sink_place

    first, second = (options[declared.name] for _, _, options in sink_place(tier.plan.flow, "kept").members)
    assert first != second
    if declared.kind == "list":
        assert all(isinstance(each, tuple) and each for each in (first, second))


@pytest.mark.parametrize(("type_", "option", "value"), ALONE)
def test_what_keeps_a_sink_out_of_a_group_is_refused_at_its_option_with_why(tmp_path: Path, type_: str, option: str, value: str) -> None:
    path = flow(tmp_path, type_, **{option: value}, **BESIDE.get(value, {}))
    (problem,) = problems(path)
    assert (problem.code, problem.place.line) == ("group-sink", 6)
    declared = catalog.sink_types()[type_].option(option)
    assert declared is not None
    assert problem.message.endswith(f"but with {option}: {value} it cannot go to a group: {declared.alone[value]}")
    assert problem.remedy.startswith(f"write {option}: ")


@pytest.mark.parametrize(
    ("type_", "at", "says"),
    [
        ("kafka", "/mnt/a", 'has "/mnt/a", which is not a list of brokers'),
        ("postgres", "db1:5432", 'has "db1:5432", which is not an address of a database'),
        ("objects", "/mnt/a", "has no scheme"),
        ("hdfs", "s3://shop/orders", 'begins with "s3://"'),
        ("delta", "http://shop/orders", 'begins with "http://"'),
        ("cassandra", "http://c1", "which is not an address"),
        ("hbase", "thrift://h1,http://h2", "which is not an address of a Thrift server"),
        ("opensearch", "s1:9200", "which is not an address"),
    ],
)
def test_an_at_is_looked_at_as_the_option_that_it_gives(tmp_path: Path, type_: str, at: str, says: str) -> None:
    (problem,) = problems(flow(tmp_path, type_, at=(at, AT[type_][1])))
    assert (problem.code, problem.place.line) == ("group-place", MEMBER_LINE)
    named = catalog.sink_types()[type_].by_member
    assert named is not None
    assert f'member "m1" of group "places", whose `at` is the {named.name} of sink "kept",' in problem.message
    assert says in problem.message


@pytest.mark.parametrize(
    ("type_", "at"),
    [
        ("postgres", "postgresql://etl:pw4nobody@db1/shop"),
        ("postgres", "postgresql://db1/shop?password=pw4nobody"),
        ("opensearch", "http://s1:9200,http://me:pw4nobody@s2:9200"),
        ("http", "https://me:pw4nobody@api.example.com/orders"),
        ("http", "https://api.example.com/orders?token=pw4nobody"),
    ],
)
def test_a_password_in_an_at_is_refused_and_not_shown(tmp_path: Path, type_: str, at: str) -> None:
    (problem,) = problems(flow(tmp_path, type_, at=(at, AT[type_][1])))
    assert (problem.code, problem.place.line) == ("secret-in-plain", MEMBER_LINE)
    assert "pw4nobody" not in f"{problem.message} {problem.remedy}"
    assert "${secret:env/NAME}" in problem.remedy


def test_an_address_as_a_path_below_members_is_refused(tmp_path: Path) -> None:
    (problem,) = problems(flow(tmp_path, "delta", path="s3://shop/lake"))
    assert (problem.code, problem.place.line) == ("group-place", 6)
    assert "the option must be relative to `at` of each member" in problem.message


def test_a_table_lies_below_each_member_in_a_folder_or_in_a_store(tmp_path: Path) -> None:
    (tier,) = prepare(flow(tmp_path, "delta", path="orders"), state=None).tiers
    assert sorted(kept_tables(tier.plan.flow)) == ["/mnt/a/orders", "s3://shop-b/lake/orders"]


def test_what_members_hold_in_stores_is_kept_as_what_others_hold(tmp_path: Path) -> None:
    (tier,) = prepare(flow(tmp_path, "objects", roll="{size: 1MiB, every: 1m}"), state=None).tiers
    assert [str(keeper.address) for keeper in kept_stores(tier.plan.flow)] == ["s3://shop-a/orders", "s3://shop-b/orders"]


@pytest.mark.parametrize(
    ("type_", "beside", "code"),
    [("postgres", {}, "table-two-writers"), ("objects", {}, "object-two-writers"), ("delta", {}, "object-two-writers")],
)
def test_two_sinks_of_one_group_do_not_write_to_one_place(tmp_path: Path, type_: str, beside: dict[str, str], code: str) -> None:
    path = flow(tmp_path, type_, **beside)
    (line,) = [line for line in path.read_text().splitlines() if line.startswith("  kept:")]
    path.write_text(path.read_text().replace(line, f"{line}\n{line.replace('kept:', 'other:')}"))
    with pytest.raises(InputError) as told:
        prepare(path, state=None)
    assert [(problem.code, problem.place.line) for problem in told.value.problems] == [(code, 7)]


def test_a_bootstrap_beside_a_group_is_said_to_have_no_effect(tmp_path: Path) -> None:
    path = flow(tmp_path, "kafka", bootstrap="b0:9092")
    (warning,) = [problem for problem in prepare(path, state=None).warnings if problem.code == "group-option"]
    assert (warning.place.line, warning.severity) == (6, "warning")
