"""A real control plane in a folder: processes, ZooKeeper and Spark, for tests and the demo of the console."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

import scribengin
from harness.edge_plane import within
from scribengin.client.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIMIT_S = 240


class DevPlane:
    """`scribengin server dev` with its home in a folder, and flows below it."""

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        """Not started yet.

        Args:
            folder: of its home and its flows.
            options: of `server dev`.
            environment: of its processes, besides that of this one.
        """
        self.folder = folder
        self._options = options
        self.home = folder / "home"
        code = str(Path(scribengin.__file__).parents[1])  # of the tests, also if PYTHONPATH is relative to where they were started
        self._environment = os.environ | dict(environment or {}) | {"SCRIBENGIN_HOME": str(self.home), "PYTHONPATH": code}

    @property
    def url(self) -> str:
        """The address of the console."""
        return str(json.loads((self.home / "up.json").read_text(encoding="utf-8"))["http"])

    def client(self) -> Client:
        """A client of its master."""
        return Client([self.url])

    def command(self, *words: str) -> Any:
        """The result of a command with --json."""
        ended = subprocess.run(
            [sys.executable, "-m", "scribengin.cli", *words, "--json"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert ended.returncode == 0, f"{words}: {ended.stdout} {ended.stderr}"
        return json.loads(ended.stdout)["result"]

    def apply(self, name: str, files: Mapping[str, str | bytes]) -> None:
        """Submit a flow that is made of these files; `flow.yaml` is the flow."""
        for path, content in files.items():
            place = self.folder / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.command("apply", f"{name}/flow.yaml")

    def rows(self, flow: str) -> list[dict[str, Any]]:
        """The rows in the output folder `out` of a flow."""
        return [json.loads(line) for file in (self.folder / flow / "out").glob("part-*") for line in file.read_text().splitlines()]

    @contextmanager
    def up(self) -> Iterator[None]:
        """The control plane, until the end; then none of its processes is left."""
        log = self.folder / "up.log"
        with log.open("a") as out:
            command = [sys.executable, "-m", "scribengin.cli", "server", "dev", *self._options]
            process = subprocess.Popen(command, cwd=self.folder, env=self._environment, stdout=out, stderr=out)
            try:
                within(LIMIT_S, lambda: (self.home / "up.json").exists() or process.poll() is not None, "the control plane runs")
                assert process.poll() is None, log.read_text()
                yield
            finally:
                process.kill()
                process.wait()
                end_all(self.home)


def processes_of(home: Path) -> list[psutil.Process]:
    """The processes of a control plane: those whose environment has its home."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or is of another user
            if process.environ().get("SCRIBENGIN_HOME") == str(home):
                found.append(process)
    return found


def end_all(home: Path) -> None:
    """Kill the processes of a control plane."""
    for process in processes_of(home):
        process.kill()
