"""Writes docs/founding-picture.md from a run of examples/pipeline: `python tests/docs/record_picture.py`. The test looks at what must be
the same in each run: which records came to the ends, by which way, and that all of it balances."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.control.home import Home
from scribengin.core.cache import cache_folder
from scribengin.core.process import within
from scribengin.embedded import services

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.registry.contract import Registry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "founding-picture.md"
EXAMPLE = ROOT / "examples" / "pipeline"
SERVERS = {"BOOTSTRAP": "kafka", "NAMENODE": "hdfs", "POSTGRES": "postgres"}
FLOWS = ("gather", "split", "payments", "visits")
ALL_S = 600.0
MORE = """
import json
import os
from generate import event

with open("app/.more.jsonl", "w") as file:
    file.write("".join(json.dumps(event(number)) + "\\n" for number in range(2000, 3000)))
os.rename("app/.more.jsonl", "app/more.jsonl")
"""
HEAD = """# The founding picture

The first document of Scribengin draws sources and sinks of different kinds, dataflows between them that are separated by Kafka, a master
and workers that keep their tasks in a tree of ZooKeeper. It requires that flows know each other, that another worker replaces a failed one,
and that the path of a record can be found. This page is the output of [examples/pipeline](../examples/pipeline/README.md), run by
`scribengin server dev` on one machine; `python tests/docs/record_picture.py` writes it again.

| in the picture | here |
|---|---|
| source, sink | `gather` reads files of an application and of HDFS; `payments` writes files of HDFS, `visits` a table of PostgreSQL |
| dataflow | each of the four flow files |
| Kafka between dataflows | the topics `events`, `payments`, `visits`: they connect the flows, which need not name each other |
| master | the process of `server dev`; with `scribengin server master` several, of which one leads |
| worker, container | a process for each tier of a flow, which a node starts: `flow.tier-number` |
| ZooKeeper | [the registry](registry.md): the desired state, workers and their tiers, progress |
"""


class Picture:
    """The flows in a folder, and what was said of them, part by part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.parts: list[tuple[str, str, list[tuple[str, str]]]] = []
        self._settings = {name: value for name, value in os.environ.items() if not name.startswith("SCRIBENGIN_")}
        self._settings |= {"SCRIBENGIN_CACHE": str(cache_folder()), "SCRIBENGIN_HOME": str(self.home), "COLUMNS": "160"}
        for name, address in zip(SERVERS, self._started(), strict=True):
            self._settings[name] = address

    def part(self, heading: str, about: str, *commands: str) -> None:
        """Give the commands, and keep what they print."""
        self.parts.append((heading, about, [(command, self.says(command)) for command in commands]))

    def says(self, command: str) -> str:
        program = [sys.executable, "-m", "scribengin.cli"] if command.startswith("scribengin ") else [sys.executable]
        words = [*program, *re.findall(r"'[^']*'|\S+", command)[1:]]
        ended = subprocess.run(
            [word.strip("'") for word in words], cwd=self.folder, env=self._settings, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr

    def found(self, command: str) -> Any:
        return json.loads(self.says(f"{command} --json"))["result"]

    def come(self, payments: int) -> None:
        """Until so many payments, and as many visits of each page, are at the ends."""
        wanted = [f"{payments:,} payments, {payments:,} different ones", *[f"{payments:,} visits"] * 4]

        def have_come() -> bool:
            told = self._looked()
            return len(told) == len(wanted) and all(line.endswith(each) for line, each in zip(told, wanted, strict=True))

        assert within(ALL_S, have_come), self._looked()

    @contextmanager
    def up(self) -> Iterator[None]:
        """`scribengin server dev`, in which servers and secrets of the flows are known."""
        process = subprocess.Popen(
            [sys.executable, "-m", "scribengin.cli", "server", "dev"],
            cwd=self.folder,
            env=self._settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert within(ALL_S, (self.home / "up.json").exists)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(ALL_S)

    def tree(self, *roots: str) -> None:
        """Keep the names of the registry below these."""
        with Home(self.home).registry() as registry:
            lines = [line for root in roots for line in _names(registry, root)]
        heading = "The tree"
        about = "Names below the registry's root. [The registry](registry.md) describes each record and its writer."
        self.parts.append((heading, about, [("", "\n".join(lines))]))

    def _looked(self) -> list[str]:
        return subprocess.run(
            [sys.executable, "look.py"], cwd=self.folder, env=self._settings, capture_output=True, text=True, check=False
        ).stdout.splitlines()

    def _started(self) -> list[str]:
        told = {
            row["name"]: row["address"] for row in self.found(f"scribengin dev-services start {' '.join(SERVERS.values())}")["services"]
        }
        return [told[name] for name in SERVERS.values()]


def _names(registry: Registry, path: str, deep: int = 0) -> Iterator[str]:
    """Of a folder with many numbers the first and the last."""
    yield "  " * deep + path.rpartition("/")[2]
    names = [name for name in registry.children(path) if not name.startswith(".")]
    if len(names) > 3 and all(map(str.isdigit, names)):
        yield "  " * (deep + 1) + f"{min(names, key=int)} … {max(names, key=int)}"
        return
    for name in sorted(names):
        yield from _names(registry, f"{path}/{name}", deep + 1)


def record(folder: Path) -> Picture:
    """Run all of it in a folder that is not there yet."""
    shutil.copytree(EXAMPLE, folder)
    try:
        picture = Picture(folder)
        files = " ".join(f"{flow}.yaml" for flow in FLOWS)
        with picture.up():
            picture.part(
                "The flows, submitted at once",
                "They wait for topics that other flows still have to make.",
                "python generate.py",
                f"scribengin apply {files} --wait 8m",
            )
            picture.come(400)
            picture.part(
                "They know each other",
                "The connections are not declared: each flow names its topics only.",
                "scribengin list",
                "scribengin graph split",
                "scribengin status payments",
            )
            (tier,) = picture.found("scribengin status split")["tiers"]
            os.kill(tier["process"]["pid"], signal.SIGKILL)
            picture.says(f"python -c '{MORE}'")
            picture.come(600)
            picture.part(
                "A worker is killed",
                "SIGKILL ended the worker of `split`, and a thousand more events came. Another worker took over; each event is at "
                "its sink once.",
                "python look.py",
                "scribengin status split",
            )
            picture.part(
                "The path of a record",
                "The trace goes from the third flow back to the file or object of the record, and on to the sink.",
                "scribengin trace payments 'payments/payments-0@0'",
            )
            picture.tree("logicalnodes", "physicalnodes", "flows/split", "acks")
            picture.part("Verification", "", *(f"scribengin audit {flow}" for flow in FLOWS))
    finally:
        services.stop(services.NAMES, folder / ".scribengin")
    return picture


def page(picture: Picture) -> str:
    parts = [HEAD]
    for heading, about, commands in picture.parts:
        parts.append(f"\n## {heading}\n" + (f"\n{about}\n" if about else ""))
        for command, said in commands:
            shown = f"$ {command}\n{said}" if command else said
            parts.append(f"\n```\n{shown.strip()}\n```\n")
    text = "".join(parts).replace(str(picture.folder.resolve()), "/flows").replace(str(picture.folder), "/flows")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text).replace(os.uname().nodename, "host1")
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        PAGE.write_text(page(record(Path(name) / "pipeline")))
