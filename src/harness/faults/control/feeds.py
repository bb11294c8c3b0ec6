"""Flows under load: numbered records are fed while the flow is struck, and at the end each must have been written exactly once."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from harness.faults.table_flows import read_table
from harness.faults.topics import TopicReader, Topics
from scribengin.connectors.postgres import client
from scribengin.testing.checker import Found, check_output, check_records, visible_files
from scribengin.testing.records import SCHEMA, RecordKey, make_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from psycopg import Connection

    from scribengin.embedded.postgres import Postgres
    from scribengin.testing.checker import Findings

_STEPS = """\
from scribengin import record


@record
def copied(row: dict) -> dict:
    return row
"""
BROKEN = "broken on purpose"
"""the message of a flow's code that fails on purpose"""
_FAILING = _STEPS.replace("return row", f'raise ValueError("{BROKEN}")')
_EDITED = "# version {version}\n"
_PARTITIONS = 2
_CONNECT_S = 2
WORKERS = 3
"""the number of workers of the flow whose Batches are shared"""


class FlowFeed(Protocol):
    """A flow in a folder, with its input. `grow` adds the next part of the input atomically; `commits` is a number that rises with the
    visible output."""

    folder: Path
    version: int

    @property
    def name(self) -> str:
        """The name of the flow."""

    @property
    def rows(self) -> int:
        """The number of records in each part."""

    @property
    def parts(self) -> int:
        """The number of parts so far."""

    @property
    def label(self) -> str:
        """The flow's name in reports: the same in all lives."""

    def edit(self, version: int) -> None:
        """Change the code of the flow without changing its effect."""

    def write(self) -> None:
        """Write the files of the flow, and create what it reads and writes."""

    def grow(self) -> None:
        """Add one part of `rows` records. Raises OSError if there is no space; then nothing was added."""

    def commits(self) -> int:
        """A number that rises with the visible output."""

    def judge(self) -> Findings:
        """Check the output."""


@dataclass
class FileFeed:
    """Files to files in one tier: the records of each file must stay in order."""

    folder: Path
    """the folder as the flow's processes see it"""
    seen: Callable[[Path], Path] = lambda path: path
    name: str = "filed"
    rows: int = 20
    parts: int = 0
    version: int = 1
    ordered: bool = True
    """True if the records of each file stay in order"""

    @property
    def label(self) -> str:
        """See `FlowFeed`."""
        return self.name

    def write(self) -> None:
        """See `FlowFeed`."""
        self.seen(self.folder / "data").mkdir(parents=True, exist_ok=True)
        self.seen(self.folder / "flow.yaml").write_text(self.text())
        self.edit(self.version)

    def text(self) -> str:
        """The text of the flow file."""
        text = f'version: 1\nname: {self.name}\nsources: {{records: {{type: files, path: data, format: json, schema: "{SCHEMA}"}}}}\n'
        text += (
            'steps: {done: {from: records, python: "steps:copied"}}\nsinks: {kept: {from: done, type: files, path: out, format: json}}\n'
        )
        return text

    def edit(self, version: int) -> None:
        """Change the code of the flow without changing its effect."""
        self.version = version
        self.seen(self.folder / "steps.py").write_text(_EDITED.format(version=version) + _STEPS)

    def grow(self) -> None:
        """See `FlowFeed`."""
        folder = self.seen(self.folder / "data")
        draft = folder / f".part-{self.parts:05}"
        try:
            draft.write_bytes(msgspec.json.Encoder().encode_lines([make_record(key) for key in self._keys(self.parts)]))
            draft.rename(folder / f"part-{self.parts:05}.jsonl")
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        self.parts += 1

    def commits(self) -> int:
        """See `FlowFeed`: the number of visible files."""
        with suppress(OSError):
            return sum(1 for _ in visible_files(self._out))
        return 0

    def judge(self) -> Findings:
        """See `FlowFeed`."""
        return check_output(self._out, "json", [key for part in range(self.parts) for key in self._keys(part)], ordered=self.ordered)

    @property
    def _out(self) -> Path:
        return self.seen(self.folder / "out")

    def _keys(self, part: int) -> list[RecordKey]:
        return [RecordKey("run", part, seq) for seq in range(self.rows)]


@dataclass
class SharedFeed(FileFeed):
    """A FileFeed with several workers that share each Batch: a part consists of several streams."""

    name: str = "shared"
    rows: int = 1600

    def text(self) -> str:
        """See `FileFeed`."""
        text = super().text().replace("format: json, schema", "format: json, split: 64KiB, schema")
        return f"{text}tiers: {{core: {{steps: [done, kept], workers: {WORKERS}, resources: {{cores: 1}}}}}}\n"


@dataclass
class CutFeed(FileFeed):
    """A FileFeed in two tiers, between which a third one is inserted and removed again."""

    name: str = "cut"
    ordered: bool = False
    """a channel keeps no order"""
    is_long: bool = False
    """True while it has the third tier"""

    def text(self) -> str:
        """See `FileFeed`."""
        middle = '  middle: {from: front, python: "steps:copied"}\n' if self.is_long else ""
        between = "between: {steps: [middle]}, " if self.is_long else ""
        text = f'version: 1\nname: {self.name}\nsources: {{records: {{type: files, path: data, format: json, schema: "{SCHEMA}"}}}}\n'
        text += f'steps:\n  front: {{from: records, python: "steps:copied"}}\n{middle}'
        text += f'  back: {{from: {"middle" if self.is_long else "front"}, python: "steps:copied"}}\n'
        text += "sinks: {kept: {from: back, type: files, path: out, format: json}}\n"
        return f"{text}tiers: {{first: {{steps: [front]}}, {between}last: {{steps: [back, kept]}}}}\n"


@dataclass
class TableFeed:
    """Writes the output of a file flow into a PostgreSQL table, on a group of hosts. It fails while the server is unavailable or its code
    is broken; if the backlog reaches `capacity`, some seconds of load, the file flow is paused."""

    folder: Path
    feeder: FileFeed
    server: Postgres
    hosts: tuple[str, ...]
    """the hosts of its group; the first one is preferred"""
    version: int = 1
    _seen_rows: int = 0
    _connection: Connection[Any] | None = None

    @property
    def name(self) -> str:
        """See `FlowFeed`."""
        return f"reads_{self.feeder.name}"

    @property
    def label(self) -> str:
        """See `FlowFeed`."""
        return self.name

    @property
    def rows(self) -> int:
        """See `FlowFeed`."""
        return self.feeder.rows

    @property
    def parts(self) -> int:
        """See `FlowFeed`: the parts of its feeder."""
        return self.feeder.parts

    def write(self) -> None:
        """See `FlowFeed`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "flow.yaml").write_text(self.text())
        self.edit(self.version)

    def text(self) -> str:
        """The text of the flow file."""
        members = ", ".join(f"{{at: {host}, cost: {nth + 1}}}" for nth, host in enumerate(self.hosts))
        text = f"version: 1\nname: {self.name}\nsources:\n"
        text += f'  made: {{type: files, path: {self.feeder.folder / "out"}, format: json, schema: "{SCHEMA}",'
        text += " high_water: {bytes: 16KiB}, capacity: {bytes: 32KiB}}\n"
        text += 'steps: {done: {from: made, python: "steps:copied", on_error: fail}}\n'
        text += f'sinks: {{kept: {{from: done, type: postgres, server: "{self.server.uri}", table: {self.name}}}}}\n'
        return f"{text}tiers: {{core: {{steps: [done, kept], group: takers}}}}\ngroups: {{takers: {{members: [{members}]}}}}\n"

    def edit(self, version: int) -> None:
        """See `FlowFeed`."""
        self.version = version
        (self.folder / "steps.py").write_text(_EDITED.format(version=version) + _STEPS)

    def break_code(self) -> None:
        """Replace the code by one that fails on every record, until the next `edit`."""
        (self.folder / "steps.py").write_text(_FAILING)

    def grow(self) -> None:
        """Does nothing: its feeder grows."""

    def commits(self) -> int:
        """See `FlowFeed`: the number of rows. While the server is unavailable, the last known number."""
        driver = client.driver()
        try:
            if self._connection is None:
                self._connection = driver.connect(self.server.uri, autocommit=True, connect_timeout=_CONNECT_S)
            (there,) = self._connection.execute("SELECT to_regclass(%s) IS NOT NULL", (self.name,)).fetchone() or (False,)
            if there:
                (self._seen_rows,) = self._connection.execute(f"SELECT count(*) FROM {self.name}").fetchone() or (0,)
        except driver.OperationalError:
            self.close()
        return self._seen_rows

    def judge(self) -> Findings:
        """See `FlowFeed`."""
        with closing(client.driver().connect(self.server.uri, autocommit=True)) as connection:
            found = [Found(self.name, row) for row in read_table(connection, "public", self.name)]
        expected = (RecordKey("run", part, seq) for part in range(self.parts) for seq in range(self.rows))
        return check_records(expected, found, ordered=False)

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


@dataclass
class TopicFeed:
    """Topic to topic, in two tiers with a topic as channel. The names of the topics are unique for each life; `remove` deletes them."""

    folder: Path
    bootstrap: str
    life: str
    rows: int = 20
    parts: int = 0
    version: int = 1
    _reader: TopicReader | None = None

    @property
    def name(self) -> str:
        """See `FlowFeed`."""
        return f"{self.label}_{self.life}"

    @property
    def label(self) -> str:
        """See `FlowFeed`."""
        return "chained"

    @property
    def _prefix(self) -> str:
        return f"control-{self.life}-"

    def write(self) -> None:
        """See `FlowFeed`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._topics.make({f"{self._prefix}in": _PARTITIONS, f"{self._prefix}out": _PARTITIONS}, replication=1)
        at = f'type: kafka, bootstrap: "{self.bootstrap}"'
        channel = f'{{type: kafka, bootstrap: "{self.bootstrap}", partitions: {_PARTITIONS}}}'
        text = f"version: 1\nname: {self.name}\nsources:\n"
        text += f'  arrived: {{{at}, topics: [{self._prefix}in], format: json, max_rows: 200, schema: "{SCHEMA}"}}\n'
        text += 'steps:\n  front: {from: arrived, python: "steps:copied"}\n  back: {from: front, python: "steps:copied"}\nsinks:\n'
        text += f"  kept: {{from: back, {at}, topic: {self._prefix}out, format: json, key: part, markers: {self._prefix}out-markers}}\n"
        text += "tiers: {first: {steps: [front]}, last: {steps: [back, kept]}}\n"
        text += f'edges: {{"front -> back": {{channel: {channel}}}}}\n'
        (self.folder / "flow.yaml").write_text(text)
        self.edit(self.version)

    def edit(self, version: int) -> None:
        """Change the code of the flow without changing its effect."""
        self.version = version
        (self.folder / "steps.py").write_text(_EDITED.format(version=version) + _STEPS)

    def grow(self) -> None:
        """See `FlowFeed`."""
        self._topics.write(f"{self._prefix}in", (make_record(key) for key in self._keys(self.parts)), self.parts % _PARTITIONS)
        self.parts += 1

    def commits(self) -> int:
        """See `FlowFeed`: the end offsets of the readable records."""
        if self._reader is None:
            self._reader = TopicReader(self.bootstrap, f"{self._prefix}out")
        return sum(self._reader.ends().values())

    def judge(self) -> Findings:
        """See `FlowFeed`. Also checks that no transaction is left open."""
        with closing(TopicReader(self.bootstrap, f"{self._prefix}out")) as reader:
            found = [Found(str(message.partition), message.row()) for message in reader.rest()]
            committed, all_ = reader.ends(), reader.ends(committed=False)
        findings = check_records((key for part in range(self.parts) for key in self._keys(part)), found, ordered=False)
        findings.torn += [f"a transaction is left open in {partition}" for partition, end in committed.items() if end != all_[partition]]
        return findings

    def remove(self) -> None:
        """Delete the topics."""
        if self._reader is not None:
            self._reader.close()
        for prefix in (self._prefix, f"scribengin-{self.name}-"):
            self._topics.remove(prefix)

    @property
    def _topics(self) -> Topics:
        return Topics(self.bootstrap)

    def _keys(self, part: int) -> list[RecordKey]:
        return [RecordKey("run", part, seq) for seq in range(self.rows)]


@dataclass
class Load:
    """Adds a part to each flow every `every_s` seconds, and records when their outputs grew, with one thread per flow. A context
    manager."""

    feeds: list[FlowFeed]
    every_s: float
    clock: Callable[[], float]
    grown: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    """flow → (time on `clock`, `commits`), at each change"""
    wrong: list[str] = field(default_factory=list)
    _feeding: threading.Event = field(default_factory=threading.Event)
    _looking: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def first_after(self, feed: FlowFeed, moment: float) -> float | None:
        """The time at which the flow's output first grew after `moment`; None if it has not."""
        return next((at for at, _ in self.grown[feed.name] if at > moment), None)

    def longest_silence_s(self, feed: FlowFeed, since: float, until: float) -> float:
        """The longest time between two moments in which the flow's output did not grow, in seconds."""
        moments = [since, *(at for at, _ in self.grown[feed.name] if since < at < until), until]
        return max(later - earlier for earlier, later in pairwise(moments))

    def stop_feeding(self) -> None:
        """Add no more parts; outputs are still observed."""
        self._feeding.set()
        for thread in self._threads:
            if thread.name == "feed":
                thread.join()

    def __enter__(self) -> Load:
        for feed in self.feeds:
            self.grown[feed.name] = []
            for name, act in (("feed", self._feed), ("look", self._count_commits)):
                thread = threading.Thread(target=act, args=(feed,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._feeding.set()
        self._looking.set()
        for thread in self._threads:
            thread.join()

    def _feed(self, feed: FlowFeed) -> None:
        while not self._feeding.wait(self.every_s):
            with suppress(OSError):  # the disk is full: the same part is added again later
                feed.grow()

    def _count_commits(self, feed: FlowFeed) -> None:
        last = feed.commits()
        while not self._looking.wait(0.1):
            now = feed.commits()
            if now < last:
                self.wrong.append(f"{feed.name}: what could be seen went from {last} to {now}")
            if now != last:
                self.grown[feed.name].append((self.clock(), now))
                last = now
