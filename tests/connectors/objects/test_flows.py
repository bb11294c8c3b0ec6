"""Flows into object stores, by Spark: what a run does from its start to its audit, and what is left when things die."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from harness.object_stores import opened, options, or_skipped
from scribengin.connectors.objects.s3 import S3Store
from scribengin.core.errors import InputError, Refused
from scribengin.local.audit import audit_flow
from scribengin.local.prepare import prepare
from scribengin.local.reset import Reset
from scribengin.reading import committed
from scribengin.state import trash

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.embedded.objects import ObjectServer
    from scribengin.local.audit import FlowAudit
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, customer STRING, amount DOUBLE"}}
steps: {large: {from: orders, filter: amount >= 10}}
sinks: {kept: {from: large, type: objects, url: "URL", endpoint: "ENDPOINT", format: parquet, MORE}}
"""


def orders(*ids: int, amount: float = 20.0) -> list[dict[str, Any]]:
    return [{"id": id_, "customer": f"c{id_ % 2}", "amount": amount} for id_ in ids]


@pytest.mark.parametrize("visible", ["manifest", "listing"])
def test_rows_come_to_the_store_and_more_of_them_in_a_second_run(
    folder: FlowFolder, server: ObjectServer, prefix: str, visible: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(server.credentials))
    url = options(server, prefix)["url"]
    more = f"visible: {visible}, partition_by: [customer]"
    folder.flow(FLOW.replace("URL", url).replace("ENDPOINT", server.uri).replace("MORE", more))
    folder.data("data/a.jsonl", [*orders(1, 2, 3), *orders(4, amount=1)])
    result = folder.run()
    assert (result.state, result.violations) == ("finished", ())
    folder.data("data/b.jsonl", orders(5, 6))
    assert folder.run().violations == ()
    found = committed(url, endpoint=server.uri)
    assert sorted((row["id"], row["customer"]) for row in found.dataset().to_table().to_pylist()) == [
        (1, "c1"), (2, "c0"), (3, "c1"), (5, "c1"), (6, "c0"),
    ]  # fmt: skip
    listed = [entry.key for entry in opened(server, prefix).list() if not entry.key.startswith("_")]
    assert sorted(listed) == sorted(each.key for each in found.objects)
    assert all(key.startswith("data/") for key in listed) is (visible == "manifest")


def test_objects_are_read_once_over_two_runs(
    folder: FlowFolder, server: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(server.credentials))
    given = 'type: objects, url: "URL", endpoint: "ENDPOINT", names: sorted'.replace("URL", options(server, prefix)["url"])
    flow = (
        FLOW.replace("type: files, path: data", given).partition("sinks:")[0]
        + "sinks: {kept: {from: large, type: files, path: out, format: json}}\n"
    )
    folder.flow(flow.replace("ENDPOINT", server.uri))
    store = opened(server, prefix)
    for nth, ids in enumerate(((1, 2, 3), (4, 5))):
        store.put(f"{nth}.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in orders(*ids)) + b"torn\n")
        (query,) = folder.run().queries
        assert query.nodes["orders"].dead == nth + 1
    assert sorted(row["id"] for row in folder.read("out")) == [1, 2, 3, 4, 5]


def test_a_prefix_of_others_stops_a_start_with_what_is_to_be_done(folder: FlowFolder, server: ObjectServer, prefix: str) -> None:
    given = options(server, prefix)
    opened(server, prefix).put("theirs", b"1")
    login = ", ".join(f"{name}: {value}" for name, value in given["config"].items())
    folder.flow(FLOW.replace("URL", given["url"]).replace("ENDPOINT", server.uri).replace("MORE", f"config: {{{login}}}"))
    folder.data("data/a.jsonl", orders(1))
    with pytest.raises((Refused, InputError), match="written by an unknown writer"):
        folder.run()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "route", "aims"),
    [
        ("tail", "files-to-objects-listed", ("server@stage.mid_write",)),
        pytest.param("coins", "files-to-objects-listed", ("kill@publish.renamed", "server@stage.mid_write"), marks=pytest.mark.long),
        pytest.param("aggregate", "files-to-objects", ("kill@publish.record.before", "two@decide.before"), marks=pytest.mark.long),
    ],
)
def test_a_life_of_kills_loses_and_doubles_nothing(public_path: Path, kind: str, route: str, aims: tuple[str, ...]) -> None:
    or_skipped(public_path)
    life = Life(kind, route, False, tuple(Aim(*aim.split("@")) for aim in aims))
    outcome = run_life(life, 1, public_path / "life", limit_s=400)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome
    assert outcome.looks > 0


def reset_of(folder: FlowFolder) -> Reset:
    found = prepare(folder.path / "flow.yaml", state=None)
    return Reset.of(found.plan.flow, [(tier.plan.flow, tier.folder) for tier in found.tiers], outputs=True)


def audit_of(folder: FlowFolder) -> FlowAudit:
    return audit_flow(prepare(folder.path / "flow.yaml", state=None))


@pytest.fixture
def shop(folder: FlowFolder, server: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch) -> FlowFolder:
    """One Batch through; who lists sees its object."""
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(server.credentials))
    url = options(server, prefix)["url"]
    folder.flow(FLOW.replace("URL", url).replace("ENDPOINT", server.uri).replace("MORE", "visible: listing"))
    folder.data("data/a.jsonl", orders(1, 2, 3))
    assert folder.run().balanced
    return folder


def test_a_reset_moves_objects_to_a_trash_from_which_they_come_back_for_a_week(
    shop: FlowFolder, server: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(server, prefix)
    before = {entry.key: store.get(entry.key) for entry in store.list()}
    _, (output,) = reset_of(shop).lost()
    assert (output.sink, output.items, output.restorable) == ("kept", 1, True)
    assert {entry.key: store.get(entry.key) for entry in store.list()} == before
    first = reset_of(shop).run([output.as_json()]).id
    assert [entry.key for entry in store.list() if not entry.key.startswith("_scribengin_trash/")] == []
    assert shop.run().balanced, "the trash is in nobody's way"
    assert [sink.others for report in audit_of(shop).reports for sink in report.sinks] == [()]
    with pytest.raises(Refused, match="exists again"):
        reset_of(shop).undo(first)
    reset_of(shop).run([])
    reset_of(shop).undo(first)
    assert {key: store.get(key) for key in before} == before
    shop.data("data/b.jsonl", orders(4))
    assert shop.run().balanced
    assert audit_of(shop).balanced
    assert list(store.list("_scribengin_trash"))
    monkeypatch.setattr(trash, "KEPT", timedelta(seconds=-1))
    shop.data("data/c.jsonl", orders(5))
    assert shop.run().balanced
    assert list(store.list("_scribengin_trash")) == []
    assert reset_of(shop).trash.all() == []


def test_an_output_whose_sink_is_elsewhere_by_now_stays_in_its_trash(shop: FlowFolder, server: ObjectServer, prefix: str) -> None:
    reset_of(shop).run([])
    text = (shop.path / "flow.yaml").read_text()
    url = options(server, prefix)["url"]
    shop.flow(text.replace(url, f"{url}-2"))
    with pytest.raises(Refused, match="no longer has that sink") as refused:
        reset_of(shop).undo()
    assert (refused.value.code, url in refused.value.message) == ("trash-missing", True)
    shop.flow(text)
    reset_of(shop).undo()
    assert audit_of(shop).balanced


def test_where_objects_cannot_be_copied_the_list_says_that_they_are_deleted_for_good(
    shop: FlowFolder, server: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(S3Store, "copy_bytes", 3)
    _, (output,) = reset_of(shop).lost()
    assert str(output).endswith("which are deleted permanently")
    reset_of(shop).run([])
    assert list(opened(server, prefix).list()) == []
