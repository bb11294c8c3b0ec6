"""Who takes part in the Kafka benchmarks, and how one of them is run and timed in a process of its own."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
VENVS = HERE / ".venvs"
REQUIREMENTS = {
    "quixstreams": ("quixstreams==3.28.1",),
    "bytewax": ("bytewax[kafka]==0.21.1", "orjson"),
}
"""environments of their own: what each needs beside our own lock"""

PROFILES = ("throughput", "balanced", "latency")

_SESSION_WITHIN_S = 600.0
_ENDED_WITHIN_S = 60.0
_INSTALLED_WITHIN_S = 900.0


class ContenderError(Exception):
    """A contender did not come through; the message says where its words are."""


@dataclass(frozen=True)
class Contender:
    """`key` is its name in kafka_rivals; `banded`, whether it runs the record step; `needs`, its environment where it is not ours; `flow`,
    another flow file than the one of `key`."""

    name: str
    key: str
    banded: bool
    guarantee: str
    needs: str = ""
    flow: str = ""


EXACTLY, AT_LEAST = "exactly once", "at least once"
CONTENDERS = (
    Contender("scribengin: filter", "scribengin-filter", False, EXACTLY),
    Contender("scribengin: filter, no record id", "scribengin-filter-none", False, EXACTLY),
    Contender("pyspark: filter", "pyspark-filter", False, AT_LEAST),
    Contender("pyspark: filter, lingering", "pyspark-filter-linger", False, AT_LEAST),
    Contender("scribengin: record step", "scribengin-step", True, EXACTLY),
    Contender("scribengin: record step, no record id", "scribengin-step-none", True, EXACTLY),
    Contender("pyspark: row UDF", "pyspark-udf", True, AT_LEAST),
    Contender("pyspark: row UDF, lingering", "pyspark-udf-linger", True, AT_LEAST),
    Contender("loop with transactions", "loop", True, EXACTLY),
    Contender("loop, a process per core", "loop-per-core", True, EXACTLY),
    Contender("quix streams", "quix", True, EXACTLY, needs="quixstreams"),
    Contender("bytewax", "bytewax", True, AT_LEAST, needs="bytewax"),
)


def profiles(folder: Path) -> list[Contender]:
    """The record step under each profile."""
    step = (folder / "flows" / "kafka-step.yaml").read_text()
    made = []
    for profile in PROFILES:
        name = f"kafka-step-{profile}.yaml"
        (folder / "flows" / name).write_text(f"{step}defaults: {{profile: {profile}}}\n")
        made.append(Contender(f"scribengin: record step, profile: {profile}", "scribengin-step", True, EXACTLY, flow=name))
    return made


def given(flows: Sequence[Path], folder: Path) -> list[Contender]:
    """Flows that do the record step in another way. Sources and sinks of theirs say `${env:BENCH_BOOTSTRAP}`, `${env:BENCH_SOURCE}`,
    `${env:BENCH_SINK}` and `markers: "${env:BENCH_SINK}-markers"`, as those in benchmarks/flows do; `kafka_rows:banded` is the step."""
    for flow in flows:
        shutil.copy(flow, folder / "flows" / flow.name)
    return [Contender(f"scribengin: {flow.stem}", "scribengin-step", True, EXACTLY, flow=flow.name) for flow in flows]


def versions() -> str:
    """Of all that is measured."""
    ours = [f"{name} {version(name)}" for name in ("pyspark", "confluent-kafka", "orjson")]
    return ", ".join([*ours, *(needed[0].replace("==", " ") for needed in REQUIREMENTS.values())])


def clean_up_when_ended() -> None:
    """SIGTERM ends the program as Ctrl-C does, so that processes, topics and folders go with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def python_of(contender: Contender) -> Path:
    """The contender's Python; makes its environment where it is missing. Raises ContenderError where it does not install here."""
    if not contender.needs:
        return Path(sys.executable)
    folder = VENVS / contender.needs
    python = folder / "bin" / "python"
    wanted = "\n".join(REQUIREMENTS[contender.needs])
    mark = folder / "ready.txt"
    if mark.exists() and mark.read_text() == wanted:
        return python
    print(f"installing {wanted.splitlines()[0]} into {folder}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", folder],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS[contender.needs]],
    ):
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALLED_WITHIN_S)
        if ended.returncode:
            raise ContenderError(f"does not install here: {(ended.stderr or ended.stdout).strip().splitlines()[-1]}")
    mark.write_text(wanted)
    return python


@contextmanager
def started(contender: Contender, jobs: dict[str, Any], folder: Path) -> Iterator[Process]:
    """The contender's process, ended and gone after the block, whatever happened; its words go to `folder`/NAME.log."""
    python = python_of(contender)
    log = folder / f"{jobs['timed']['name']}.log"
    ours = () if contender.needs else ("PYTHONPATH",)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or name in ours}
    with log.open("wb") as words:
        child = subprocess.Popen(
            [python, HERE / "kafka_rivals.py", contender.key, json.dumps(jobs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        process = Process(child, log)
        try:
            yield process
        finally:
            process.kill()


class Process:
    """One contender's process and all below it."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self.begun_s = time.perf_counter()
        self._child = child
        self._process = psutil.Process(child.pid)
        self._log = log
        self._heard = b""

    def wait_for(self, word: str, within_s: float = _SESSION_WITHIN_S) -> None:
        """Raises ContenderError where it ends before it says so, or takes too long."""
        assert self._child.stdout is not None
        until = time.monotonic() + within_s
        while f"{word}\n".encode() not in self._heard:
            ready, _, _ = select.select([self._child.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise ContenderError(f"has not said {word} within {within_s:g} s; {self._last_words()}")
            said = os.read(self._child.stdout.fileno(), 65536)
            if not said:
                raise ContenderError(f"ended with {self._child.wait(_ENDED_WITHIN_S)} before {word}; {self._last_words()}")
            self._heard += said
        self._heard = self._heard.partition(f"{word}\n".encode())[2]

    def go_on(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(b"\n")
        self._child.stdin.flush()

    def wait_end(self) -> float:
        """Seconds from its start to its end."""
        try:
            self._child.wait(_ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise ContenderError(f"has not ended within {_ENDED_WITHIN_S:g} s; {self._last_words()}") from None
        return time.perf_counter() - self.begun_s

    def check_alive(self) -> None:
        if self._child.poll() is not None:
            raise ContenderError(f"ended with {self._child.returncode}; {self._last_words()}")

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of it and all below it, as `first` process, `java` and `others`; what has ended counts in the parent that waited."""
        total = dict.fromkeys(("first", "java", "others"), 0.0)
        for process in [self._process, *self._process.children(recursive=True)]:
            try:
                times, name = process.cpu_times(), process.name()
            except psutil.NoSuchProcess:
                continue
            part = "first" if process.pid == self._process.pid else "java" if name.startswith("java") else "others"
            total[part] += times.user + times.system + times.children_user + times.children_system
        return total

    def kill(self) -> None:
        """Ends what is left of it: the JVM and its workers are children of children."""
        try:
            family = [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            family = []
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(family, timeout=_ENDED_WITHIN_S)
        self._child.wait(_ENDED_WITHIN_S)
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"its last words: {lines[-1][-800:]}" if lines else "it said nothing"
