"""The trash of a place in a store: what a reset moves there comes back byte for byte, wherever it was killed, and nobody reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from harness.object_stores import options
from scribengin.connectors.contract import BatchId, BatchLimits, ConnectorContext, Decided
from scribengin.connectors.hdfs.options import SINK as HDFS_SINK
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.manifests import TRASH, Owners
from scribengin.connectors.objects.options import SINK
from scribengin.connectors.objects.orphans import find_orphans
from scribengin.connectors.objects.reader import ObjectsReader
from scribengin.connectors.objects.s3 import Uploads
from scribengin.connectors.objects.sink import ObjectsSink
from scribengin.core import faults
from scribengin.core.errors import Refused, SinkError
from scribengin.core.types import arrow_schema, parse_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.connectors.objects.s3 import S3Store
    from scribengin.core.store import Store

SCHEMA = parse_schema("id BIGINT NOT NULL")
ID = "2026-11-26-abc123"
PLACES = ["s3", "file", pytest.param("hdfs", marks=pytest.mark.long)]


class Killed(BaseException):
    pass


@pytest.fixture(params=PLACES)
def given(request: pytest.FixtureRequest, prefix: str, tmp_path: Path) -> dict[str, Any]:
    """A sink's options, with defaults."""
    if request.param == "s3":
        return SINK.filled(options(request.getfixturevalue("server"), prefix, format="json"))
    if request.param == "file":
        return SINK.filled({"url": f"file://{tmp_path}/objects", "format": "json", "visible": "manifest"})
    return HDFS_SINK.filled({"url": f"{request.getfixturevalue('hdfs').uri}/{prefix}", "format": "json"})


def of(given: dict[str, Any], **more: Any) -> ObjectsSink:
    return ObjectsSink(ConnectorContext("kept", Path("/nowhere"), given | more, flow="flow"))


def prepared(given: dict[str, Any], lineage: str = "one", **more: Any) -> ObjectsSink:
    sink = of(given, **more)
    sink.prepare(owner="me", lineage=lineage)
    return sink


def staged(sink: ObjectsSink, number: int, *units: list[int], lineage: str = "one") -> Decided:
    batch = BatchId("flow", "query", lineage, number, 1)
    receipts = []
    for unit, ids in enumerate(units):
        stream = sink.stream(batch, unit, f"a{number}{unit}{lineage}", SCHEMA)
        stream.write(pa.RecordBatch.from_pylist([{"id": id_} for id_ in ids], schema=arrow_schema(SCHEMA)))
        receipts.append(stream.close())
    return Decided(batch, f"hash {number}", tuple(receipts))


def written(given: dict[str, Any], **more: Any) -> list[Decided]:
    """Two Batches that are through, and one that is decided and not published."""
    sink = prepared(given, **more)
    decided = [staged(sink, 0, [1, 2], [3]), staged(sink, 1, [4]), staged(sink, 2, [5])]
    for each in decided[:2]:
        sink.publish(each)
    return decided


def store_of(given: dict[str, Any]) -> Store:
    return ObjectsAddress.of("kept", given, Path("/nowhere")).open()


def tree(given: dict[str, Any]) -> dict[str, bytes]:
    store = store_of(given)
    return {entry.key: store.get(entry.key) or b"" for entry in store.list()}


def seen(given: dict[str, Any]) -> list[str]:
    """What a source of another flow reads there."""
    reader = ObjectsReader(ObjectsAddress.of("other", given, Path("/nowhere")), divide=lambda piece: [piece])
    return [stream.label for stream in reader.split(BatchLimits(), final=True)]


def killed(monkeypatch: pytest.MonkeyPatch, nth: int, work: Callable[[], object]) -> bool:
    """Whether it died at the nth object that it moved, each of them by itself."""
    moved = 0

    def reached(point: str) -> None:
        nonlocal moved
        moved += point == "trash.moved"
        if moved >= nth:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("scribengin.connectors.objects.trash._AT_ONCE", 1)
        patched.setattr(faults, "reached", reached)
        try:
            work()
        except Killed:
            return True
    return False


def to_trash(given: dict[str, Any]) -> int:
    return of(given).move_to_trash(ID, owner="me", flow="flow")


@pytest.mark.parametrize("visible", ["manifest", "listing"])
def test_what_was_removed_comes_back_and_the_batch_under_way_is_published(given: dict[str, Any], visible: str) -> None:
    if visible == "listing" and given["url"].startswith("file:"):
        pytest.skip("a folder has no uploads in parts")
    *_, under_way = written(given, visible=visible)
    before = tree(given)
    assert of(given).restorable
    assert tree(given) == before, "finding out leaves nothing behind"
    assert of(given).move_to_trash(ID, owner="me", flow="flow") == 3
    assert {key.partition("/")[0] for key in tree(given)} == {TRASH}
    assert seen(given) == []
    assert of(given).clear(owner="me", flow="flow", dry_run=True) == 0
    of(given).check_back(ID)
    of(given).move_back(ID)
    assert tree(given) == before
    sink = prepared(given, visible=visible)
    sink.recover(under_way, lineage="one", before=3)
    assert [(each.rows, each.violations) for each in sink.audit(lineage="one", decided=[])] == [(3, ()), (1, ()), (1, ())]


@pytest.mark.parametrize("given", ["s3"], indirect=True)
@pytest.mark.parametrize("half", [False, True])
def test_wherever_it_is_killed_it_goes_on_and_comes_back_whole(given: dict[str, Any], half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `half` a reset that was killed is undone as it is."""
    written(given)
    before = tree(given)
    count = len(before)
    for nth in range(1, count + 1):
        assert killed(monkeypatch, nth, lambda: to_trash(given)), nth
        # a run in between takes nothing up as its own
        if nth < count:
            with pytest.raises(Refused):
                prepared(given, lineage="two")
        if not half:
            to_trash(given)
            assert {key.partition("/")[0] for key in tree(given)} == {TRASH}
        of(given).check_back(ID)
        back = killed(monkeypatch, count - nth + 1, lambda: of(given).move_back(ID))
        assert back or half
        of(given).check_back(ID)
        of(given).move_back(ID)
        assert tree(given) == before, nth


@pytest.mark.parametrize("given", ["s3"], indirect=True)
def test_an_object_that_was_copied_and_not_deleted_is_at_both_keys_and_counts_once(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(given)
    before = tree(given)
    store = store_of(given)

    def die(*_: object) -> None:
        raise Killed

    for work, left in ((lambda: to_trash(given), TRASH), (lambda: of(given).move_back(ID), "")):
        with monkeypatch.context() as patched:
            patched.setattr("scribengin.connectors.objects.trash._AT_ONCE", 1)
            patched.setattr(type(store), "delete", die)
            with pytest.raises(Killed):
                work()
        if not left:
            of(given).check_back(ID)
        work()
        assert {key.partition("/")[0] for key in tree(given)} == ({left} if left else {key.partition("/")[0] for key in before})
    assert tree(given) == before


def test_after_a_reset_a_new_lineage_begins_and_an_undo_is_refused_until_that_is_removed(given: dict[str, Any]) -> None:
    written(given)
    before = tree(given)
    to_trash(given)
    sink = prepared(given, lineage="two")
    decided = staged(sink, 0, [1], lineage="two")
    sink.publish(decided)
    assert [each.violations for each in sink.audit(lineage="two", decided=[decided])] == [()]
    assert list(find_orphans(store_of(given))) == []
    assert sink.unaccounted({"two"}) == []
    with pytest.raises(Refused, match="exists again") as refused:
        of(given).check_back(ID)
    assert refused.value.code == "trash-taken"
    of(given).move_to_trash("2026-11-27-other", owner="me", flow="flow")
    of(given).check_back(ID)
    of(given).move_back(ID)
    assert {key: data for key, data in tree(given).items() if not key.startswith(f"{TRASH}/")} == before


def test_what_is_dropped_is_gone_for_good(given: dict[str, Any]) -> None:
    written(given)
    to_trash(given)
    of(given).drop_trash(ID)
    assert tree(given) == {}
    with pytest.raises(Refused) as refused:
        of(given).check_back(ID)
    assert refused.value.code == "trash-missing"


@pytest.mark.parametrize("given", ["s3"], indirect=True)
def test_uploads_of_a_batch_under_way_stay_as_long_as_the_trash(given: dict[str, Any]) -> None:
    given |= {"visible": "listing"}
    written(given)
    store = cast("S3Store", store_of(given))
    assert len(uploads := set(Uploads(store).unfinished())) == 1
    to_trash(given)
    prepared(given, lineage="two")
    assert list(find_orphans(store)) == []
    assert set(Uploads(store).unfinished()) == uploads
    of(given).drop_trash(ID)
    assert not set(Uploads(store).unfinished())


@pytest.mark.parametrize("given", ["s3"], indirect=True)
def test_a_store_that_does_not_copy_keeps_nothing(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    written(given)
    before = tree(given)
    sort = type(store_of(given))
    with monkeypatch.context() as patched:
        patched.setattr(sort, "copy_bytes", 3)
        assert not of(given).restorable

    def refuse(*_: object) -> None:
        raise SinkError("AccessDenied", remedy="")

    monkeypatch.setattr(sort, "move", refuse)
    assert not of(given).restorable
    assert tree(given) == before
    assert Owners(store_of(given)).claims()
