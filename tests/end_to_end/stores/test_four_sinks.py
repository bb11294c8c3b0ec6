"""One source to four stores in one flow, one of them dead for a while: the others go on, or wait, as the flow says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from harness.faults.delta_flows import read_delta
from harness.faults.index_flows import read_index
from harness.faults.object_flows import keys_of, read_object
from harness.faults.table_flows import read_table
from harness.object_stores import address, options, or_skipped
from scribengin.connectors.delta.folder import FolderPlace
from scribengin.connectors.postgres.client import driver
from scribengin.embedded.opensearch import OpenSearch
from scribengin.embedded.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scribengin.embedded.server import LoneServer

FLOW = """
version: 1
name: shop
sources:
  orders: {{type: files, path: data, format: json, schema: "id BIGINT NOT NULL, customer STRING, amount DOUBLE"}}
sinks:
  rows: {{from: orders, type: postgres, server: "{postgres}", table: {name}{together}}}
  documents: {{from: orders, type: opensearch, server: ["{opensearch}"], index: {name}{together}}}
  objects: {{from: orders, type: objects, url: "{url}", endpoint: "{endpoint}", format: json{together}}}
  lake: {{from: orders, type: delta, path: lake{together}}}
"""
ROWS = 50
"""in each file"""
WITHIN_S = 200.0


@dataclass
class Shop:
    """The servers, and what a reader finds at each of the four."""

    folder: Path
    name: str
    """of its table, its index, its prefix: a place is one flow's for good"""
    servers: dict[str, LoneServer]
    read: dict[str, Callable[[], list[dict[str, Any]]]]
    process: subprocess.Popen[bytes] | None = None

    def ids(self, sink: str) -> Counter[int]:
        return Counter(row["id"] for row in self.read[sink]())

    def await_(self, sink: str, rows: int) -> None:
        deadline = time.monotonic() + WITHIN_S
        while self.ids(sink).total() < rows:
            assert self.process is None or self.process.poll() is None, (self.folder / "said").read_text()
            assert time.monotonic() < deadline, f"{sink}: {self.ids(sink).total()} rows of {rows}"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Postgres, OpenSearch, Any]]:
    folder = tmp_path_factory.mktemp("stores")
    with ExitStack() as stack:
        # the one that is not everywhere comes first: where it is missing nothing else has to start
        objects = stack.enter_context(or_skipped(folder / "objects"))
        yield stack.enter_context(Postgres(folder / "postgres")), stack.enter_context(OpenSearch(folder / "opensearch")), objects


@pytest.fixture
def shop(stores: tuple[Postgres, OpenSearch, Any], tmp_path: Path) -> Shop:
    postgres, opensearch, objects = stores
    name = f"orders_{uuid4().hex[:8]}"

    def rows() -> list[dict[str, Any]]:
        with closing(driver().connect(postgres.uri, autocommit=True)) as connection:
            return read_table(connection, "public", name)

    def held() -> list[dict[str, Any]]:
        place = address(objects, name)
        return [row for key in keys_of(place, place.open(), listed=False) for row in read_object(place.open(), key)]

    read = {
        "rows": rows,
        "documents": lambda: read_index(opensearch.uri, name),
        "objects": held,
        "lake": lambda: read_delta(FolderPlace("lake", tmp_path / "lake")),
    }
    return Shop(tmp_path, name, {"rows": postgres, "documents": opensearch, "objects": objects}, read)


def written(shop: Shop, *, together: bool) -> dict[str, str]:
    """The flow; returns what its process needs in its environment."""
    _, _, objects = shop.servers.values()
    text = FLOW.format(
        postgres=shop.servers["rows"].uri,
        opensearch=shop.servers["documents"].uri,
        url=options(objects, shop.name)["url"],
        endpoint=objects.uri,
        name=shop.name,
        together=", together: all" if together else "",
    )
    (shop.folder / "flow.yaml").write_text(text)
    (shop.folder / "data").mkdir()
    return {**os.environ, "AWS_SHARED_CREDENTIALS_FILE": str(objects.credentials)}


class Feed:
    """Puts a file each half a second, in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._go)
        self.files = 0

    def _go(self) -> None:
        while not self._end.is_set():
            first = self.files * ROWS
            lines = (json.dumps({"id": first + n, "customer": f"c{n % 7}", "amount": n / 4}) + "\n" for n in range(ROWS))
            draft = self._folder / f".{self.files:05d}.jsonl"
            draft.write_text("".join(lines))
            draft.rename(self._folder / f"{self.files:05d}.jsonl")
            self.files += 1
            self._end.wait(0.5)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._end.set()
        self._thread.join()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("together", "struck", "away_s"),
    [
        (False, "rows", 12),
        pytest.param(True, "rows", 12, marks=pytest.mark.long),
        pytest.param(False, "documents", 120, marks=pytest.mark.long),
        pytest.param(False, "objects", 120, marks=pytest.mark.long),
        pytest.param(True, "documents", 120, marks=pytest.mark.long),
    ],
)
def test_one_of_four_stores_dies_and_comes_back(shop: Shop, *, together: bool, struck: str, away_s: float) -> None:
    environment = written(shop, together=together)
    command = [sys.executable, "-m", "scribengin.cli", "run", "flow.yaml", "--json"]
    others = [sink for sink in shop.read if sink != struck]
    with Feed(shop.folder / "data") as feed, (shop.folder / "said").open("wb") as said:
        process = subprocess.Popen(
            command, cwd=shop.folder, env=environment, stdout=said, stderr=subprocess.DEVNULL, start_new_session=True
        )
        shop.process = process
        try:
            for sink in shop.read:
                shop.await_(sink, 2 * ROWS)
            shop.servers[struck].kill()
            dead_at, fed = time.monotonic(), feed.files * ROWS
            if together:  # what was decided before is all that may come
                time.sleep(away_s / 2)
                seen = {sink: shop.ids(sink) for sink in others}
            else:
                for sink in others:
                    shop.await_(sink, fed)
            time.sleep(max(0.0, dead_at + away_s - time.monotonic()))
            if together:
                assert {sink: shop.ids(sink) for sink in others} == seen
            else:
                assert all(shop.ids(sink).total() > fed for sink in others)
            shop.servers[struck].start()
            for sink in shop.read:
                shop.await_(sink, fed + ROWS)
            feed.end()
            for sink in shop.read:
                shop.await_(sink, feed.files * ROWS)
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(100) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    result = json.loads((shop.folder / "said").read_text())["result"]
    assert (result["state"], result["ledger"]["balanced"]) == ("stopped", True)
    for sink in shop.read:
        assert shop.ids(sink) == Counter(range(feed.files * ROWS)), sink
    audit = subprocess.run(
        [sys.executable, "-m", "scribengin.cli", "audit", "flow.yaml"], cwd=shop.folder, env=environment, capture_output=True, check=False
    )
    assert audit.returncode == 0, audit.stdout
