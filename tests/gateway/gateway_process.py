"""A gateway in a process of its own, with a channel in a folder, and what that channel holds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.connectors.agents.folder import SegmentIndexes, read_run
from scribengin.gateway.directory import lanes_of_flow
from scribengin.wire.frames import find_frames, payload_of
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator

FLOW = """\
version: 1
name: web
sources:
  access: {type: agents, input: http, listen: "127.0.0.1:9", format: json, schema: "message STRING"}
sinks:
  out: {type: files, path: out, format: json, from: access}
"""


class GatewayProcess:
    """A process. `url` is where it answers."""

    def __init__(self, folder: Path, name: str, words: tuple[str, ...] = (), environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        (folder / "flow.yaml").write_text(FLOW)
        self._log = folder / f"{name}.log"
        command = [sys.executable, "-m", "scribengin.cli", "gateway", "run", "--flow", "flow.yaml", "--folder", name, "--name", name]
        command += words
        if "--listen" not in words:
            command += ["--listen", "127.0.0.1:0"]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=folder, stderr=log, env={**os.environ, **(environment or {})})
        self.url = ""

    def wait_ready(self) -> GatewayProcess:
        def found() -> bool:
            assert self.process.poll() is None, self.log
            match = re.search(r"url='(https?://[^']+)'", self.log)
            self.url = match[1] if match else ""
            return bool(self.url)

        look_until(found, "the gateway answers", 60)
        return self

    @property
    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def gateway_process(folder: Path, name: str = "g1", *words: str, environment: dict[str, str] | None = None) -> Iterator[GatewayProcess]:
    made = GatewayProcess(folder, name, words, environment)
    try:
        yield made.wait_ready()
    finally:
        if made.process.poll() is None:
            made.kill()


def records_in(folder: Path) -> dict[tuple[str, str], list[bytes]]:
    """Agent and incarnation → its records, each once by its number, as the source reads them. A gap is an error."""
    (lane,) = lanes_of_flow(folder / "flow.yaml").values()
    path = Path(lane.channel["path"])
    found: dict[tuple[str, str], list[bytes]] = {}
    runs = sorted((run for _, _, run in SegmentIndexes(path).read_new()), key=lambda run: (run.key, run.sequence))
    for run in runs:
        records = found.setdefault(run.key, [])
        segment, start, end = run.place
        data = read_run(path, segment, start, end, "access")
        for frame in find_frames(data):
            assert frame.head is not None
            assert frame.head.sequence <= len(records), "a gap"
            new = payload_of(data, frame).split(frame.head.mark)[: frame.head.count]
            records += new[len(records) - frame.head.sequence :]
    return found
