"""An object store whose disk is full: each client says so, nothing is lost, and what waits comes once there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.faults.small_disk import SmallDisk, no_small_disk
from harness.object_stores import opened, or_skipped
from scribengin.connectors.objects.s3 import Uploads
from scribengin.connectors.objects.sink import ObjectsSink
from scribengin.core.errors import Unreachable
from scribengin.embedded import objects as embedded
from tests.connectors.objects.test_sink import ROWS, Writer, by_manifest, place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scribengin.embedded.objects import ObjectServer

REMEDY = "free space in the store, or raise its quota; a running flow retries automatically"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ObjectServer, SmallDisk]]:
    """A server whose objects lie on a disk of two megabytes."""
    if reason := no_small_disk():
        pytest.skip(reason)
    server, start = or_skipped(tmp_path / "server"), embedded.start_server
    with SmallDisk(server.folder / "data", "2m") as disk:
        (disk.seen(server.folder / "data") / embedded.BUCKET).mkdir()
        monkeypatch.setattr(
            embedded, "start_server", lambda name, command, **more: start(name, disk.wrap(list(map(str, command)), tmp_path), **more)
        )
        with server:
            yield server, disk


def test_a_full_disk_is_told_by_each_client_and_the_batch_comes_once_there_is_room(small: tuple[ObjectServer, SmallDisk]) -> None:
    server, disk = small
    store = opened(server, "kept")
    writer = Writer(place(server, "kept"))
    writer.write(0, ROWS)
    waits = writer.stage(1, ROWS)
    uploads = Uploads(store)

    def upload() -> None:
        uploads.part("large", uploads.begin("large"), 1, b"x" * (6 << 20))

    def write() -> None:
        opening = store.writer("large")
        opening.file.write(b"x" * (20 << 20))
        opening.finish()

    ways: dict[str, Callable[[], object]] = {
        "put": lambda: store.put("more", b"x" * 3_000_000),
        "write": write,
        "part": upload,
        "sink": lambda: writer.stage(2, [{**ROWS[0], "name": "x" * 3_000_000}]),
    }
    for way, ask in ways.items():
        with pytest.raises(Unreachable) as told:
            ask()
        assert (told.value.code, told.value.remedy) == ("objects-room", REMEDY), (way, told.value)
    disk.grow("64m")
    writer.sink.publish(waits)
    writer.sink.publish(waits)
    late = writer.stage(2, [{**ROWS[0], "name": "x" * 3_000_000}], attempt="b")
    writer.sink.publish(late)
    assert [row["id"] for row in by_manifest(store)] == [row["id"] for row in (*ROWS, *ROWS, ROWS[0])]
    again = ObjectsSink(place(server, "kept"))
    again.prepare(owner="me", lineage="one")
    assert not any(each.violations for each in again.audit(lineage="one", decided=[waits, late]))
