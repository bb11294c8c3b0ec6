"""Reads the `tests` of a flow file, and files of tests."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scribengin.core.time_text import WRITE_TIME, parse_time
from scribengin.spec import keys
from scribengin.spec.flow_tests import ALL, Crash, Expected, FlowTest, GivenRows, VersionChange
from scribengin.spec.reader import DocumentReader
from scribengin.spec.sections import SectionOwner, Sections
from scribengin.spec.yaml_document import Document, Mapping, Scalar, Sequence, kind_of, resolve_plain, shorten

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from scribengin.core.problems import Problem
    from scribengin.spec.places import Path as At
    from scribengin.spec.places import Places
    from scribengin.spec.sections import Read
    from scribengin.spec.yaml_document import Node

_BATCH = re.compile(r"\s*batch\s+([1-9]\d{0,5})(?:\s+(staged|decided|published))?\s*\Z")
_ROWS = "[{id: 1}]"


def read_tests(reader: DocumentReader, sections: Sections, node: Node) -> tuple[tuple[FlowTest, ...], tuple[str, ...]]:
    """(tests, files of tests) of the section at `node`: a list of both, or one file."""
    items = reader.items(node, "tests of the flow", "[{name: …, given: {…}, expect: {…}}]")
    tests: list[FlowTest] = []
    files: list[str] = []
    for index, item in enumerate(items or ()):
        if isinstance(item, Mapping):
            test = _Test(reader, sections, SectionOwner(f"test {index + 1}", item.start)).read(item)
            tests += [replace(test, index=index)] if test is not None else []
            continue
        text = reader.text(item, "an item of tests", "tests/*.yaml")
        files += [text] if text is not None else []
    return tuple(tests), tuple(files)


def parse_tests(text: str, file: str, *, folder: Path) -> tuple[tuple[FlowTest, ...], tuple[Problem, ...], Places, At]:
    """(tests, problems, places, the path of the list) of a file of tests: a list of them, or a mapping with the key `tests`.

    Args:
        text: The text of the file.
        file: Its name in problems.
        folder: The folder that paths are relative to.
    """
    document = Document(text, file)
    reader = DocumentReader(document, {}, folder)
    root, prefix = document.root, ()  # type: tuple[Node | None, At]
    if isinstance(root, Mapping) and set(root.entries) == {"tests"}:
        root, prefix = root.entries["tests"][1], ("tests",)
    tests: tuple[FlowTest, ...] = ()
    if isinstance(root, Sequence):
        tests, files = read_tests(reader, Sections(reader, {}, {}), root)
        if files:
            reader.error("wrong-kind", root, "a file of tests must not name further files of tests", "name these files in the flow file")
    elif not document.problems:
        found = kind_of(root) if root is not None else "empty"
        remedy = "write - {name: …, given: {…}, expect: {…}} for each"
        document.problem("wrong-kind", root.start if root is not None else 0, f"the file is {found}, not a list of tests", remedy)
    return tests, tuple(sorted(document.problems, key=lambda problem: problem.place)), reader.places, prefix


def parse_crash(text: str) -> Crash | None:
    """Parse `crash_after`; None if the text is not valid.

    >>> parse_crash("batch 2")
    Crash(batch=2, point='decided')
    """
    found = _BATCH.match(text)
    return Crash(int(found[1]), found[2] or "decided") if found else None  # type: ignore[arg-type]


def data_of(node: Node) -> Any:
    """A node as plain data; values without quotes are typed by YAML's core schema. `${…}` is text here."""
    match node:
        case Scalar():
            return resolve_plain(node.value) if node.plain else node.value
        case Mapping():
            return {name: data_of(value) for name, (_, value) in node.entries.items()}
    return [data_of(item) for item in node.items]


class _Test:
    """Reads one test."""

    def __init__(self, reader: DocumentReader, sections: Sections, owner: SectionOwner) -> None:
        self._reader = reader
        self._sections = sections
        self._owner = owner

    def read(self, node: Mapping) -> FlowTest | None:
        name = node.entries.get("name")
        if name is not None and isinstance(name[1], Scalar):
            self._owner = replace(self._owner, kind=f"test {shorten(name[1].value)}")
        before = self._reader.errors
        read = self._sections.read(keys.TEST, node, self._owner)
        if read is None or "name" not in read.values:
            return None
        expect, dead = self._expected(read)
        test = FlowTest(
            read.values["name"],
            self._given(read),
            expect,
            dead,
            self._clock(read),
            self._crash(read),
            self._changes(read),
        )
        return test if self._reader.errors == before else None

    def _given(self, read: Read) -> dict[str, tuple[GivenRows, ...]]:
        mapping: Mapping | None = read.values.get("given")
        entries = mapping.entries.items() if mapping else ()
        return {source: self._source(node, ("given", source)) for source, (_, node) in entries}

    def _source(self, node: Node, at: At) -> tuple[GivenRows, ...]:
        if not isinstance(node, Mapping):
            return (self._rows(node, at, raw=True),)
        read = self._sections.read(keys.GIVEN, node, self._owner.inner(".".join(map(str, at)), node.start))
        if read is None:
            return ()
        self._one_of(read, node, at)
        if "batches" in read.values:
            items = self._reader.items(read.values["batches"], self._called((*at, "batches")), f"[{_ROWS}, {_ROWS}]")
            return tuple(self._batch(item, (*at, "batches", index)) for index, item in enumerate(items or ()))
        return (self._long(read, at),)

    def _batch(self, node: Node, at: At) -> GivenRows:
        if not isinstance(node, Mapping):
            return self._rows(node, at, raw=True)
        read = self._sections.read(keys.GIVEN, node, self._owner.inner(".".join(map(str, at)), node.start))
        if read is not None and "batches" in read.given:
            self._reader.error("key-misplaced", node, f"{self._called(at)} has `batches` inside a Batch", "write rows or files here")
        elif read is not None:
            self._one_of(read, node, at)
        return self._long(read, at) if read is not None else GivenRows(at=at)

    def _long(self, read: Read, at: At) -> GivenRows:
        if "rows" in read.values:
            return self._rows(read.values["rows"], (*at, "rows"), raw=True)
        return GivenRows(files=read.values.get("files", ()), at=(*at, "files"))

    def _rows(self, node: Node, at: At, *, raw: bool) -> GivenRows:
        items = node.items if isinstance(node, Sequence) else None
        if items is None:
            self._reader.error("wrong-kind", node, f"{self._called(at)} is {kind_of(node)}, not a list of rows", f"write {_ROWS}")
            return GivenRows(at=at)
        rows: list[Any] = []
        for index, item in enumerate(items):
            value = data_of(item)
            if isinstance(value, dict) or (raw and isinstance(item, Scalar) and isinstance(value, str)):
                rows.append(value)
                continue
            form = "a mapping of columns, or a raw record in quotes" if raw else "a mapping of columns"
            message = f"{self._called((*at, index))} is {kind_of(item)}, not a row"
            self._reader.error("wrong-kind", item, message, f"write {form}, such as {{id: 1}}")
        return GivenRows(tuple(rows), at=at)

    def _mappings(self, node: Node, at: At) -> tuple[dict[str, Any], ...]:
        return tuple(row for row in self._rows(node, at, raw=False).rows if isinstance(row, dict))

    def _expected(self, read: Read) -> tuple[dict[str, Expected], dict[str, Expected] | None]:
        mapping: Mapping | None = read.values.get("expect")
        expect: dict[str, Expected] = {}
        dead: dict[str, Expected] | None = None
        for name, (_, node) in (mapping.entries if mapping else {}).items():
            if name == "dead":
                dead = self._dead(node)
            else:
                expect[name] = self._sink(node, ("expect", name))
        return expect, dead

    def _dead(self, node: Node) -> dict[str, Expected]:
        """Read `dead: 2`, `dead: [{…}]`, or `dead: {step: …}`."""
        at: At = ("expect", "dead")
        if not isinstance(node, Mapping) or {*node.entries} & {*keys.EXPECT.names}:
            return {ALL: self._sink(node, at, letters=True)}
        return {step: self._sink(inner, (*at, step), letters=True) for step, (_, inner) in node.entries.items()}

    def _sink(self, node: Node, at: At, *, letters: bool = False) -> Expected:
        if isinstance(node, Scalar) and isinstance(count := data_of(node), int) and not isinstance(count, bool) and count >= 0:
            return Expected(count=count, at=at)
        if not isinstance(node, Mapping):
            return Expected(self._mappings(node, at), at=at)
        read = self._sections.read(keys.EXPECT, node, self._owner.inner(".".join(map(str, at)), node.start))
        if read is None:
            return Expected(at=at)
        self._compared(read, node, at, letters=letters)
        rows = self._mappings(read.values["rows"], (*at, "rows")) if "rows" in read.values else None
        contains = self._mappings(read.values["contains"], (*at, "contains")) if "contains" in read.values else None
        place = (*at, "rows") if rows is not None else (*at, "contains") if contains is not None else at
        return Expected(rows, contains, read.values.get("count"), read.values.get("files", ()), read.values.get("ordered", False), place)

    def _compared(self, read: Read, node: Mapping, at: At, *, letters: bool) -> None:
        """Report expectations that would never be compared: a test that always passes is worse than no test."""
        what = [name for name in ("rows", "contains", "files", "count") if name in read.given]
        if letters and (other := next((name for name in ("files", "ordered") if name in read.given), None)):
            message = f"{self._called(at)} has `{other}`, which dead letters do not have"
            self._reader.error("key-misplaced", read.given[other][1], message, "write a number, rows, or contains")
        elif not what:
            self._reader.error(
                "wrong-kind", node, f"{self._called(at)} does not state what is expected", f"write rows: {_ROWS}, or count: 1"
            )
        elif len(what) > 1 and what != ["contains", "count"]:
            message = f"{self._called(at)} has {' and '.join(f'`{name}`' for name in what)}"
            self._reader.error("twice", node, message, "keep one of them; only `contains` has `count` beside it")
        elif "ordered" in read.given and what[0] not in ("rows", "files"):
            message = f"{self._called(at)} has `ordered` beside `{what[0]}`, which has no order"
            self._reader.error("key-misplaced", read.given["ordered"][1], message, "write rows or files, or take `ordered` out")
        elif what == ["contains"] and isinstance(among := read.values["contains"], Sequence) and not among.items:
            message = f"{self._called(at)} has an empty `contains`, so the test would always pass"
            self._reader.error("wrong-kind", among, message, f"write contains: {_ROWS}; if the sink must stay empty, rows: []")

    def _clock(self, read: Read) -> tuple[datetime, ...]:
        if "clock" not in read.values:
            return ()
        times: list[datetime] = []
        for item in self._reader.items(read.values["clock"], self._owner.key("clock"), '"2026-01-01T00:00:00Z"') or ():
            text = self._reader.text(item, self._owner.key("clock"), '"2026-01-01T00:00:00Z"')
            try:
                time = parse_time(text or "")
            except ValueError:
                if text is not None:
                    message = f"{self._owner.key('clock')} has {shorten(text)}, which is not a valid time"
                    self._reader.error("bad-value", item, message, WRITE_TIME)
                continue
            if times and time < times[-1]:
                message = f"{self._owner.key('clock')} runs backwards: {shorten(item_text(item))} is before {times[-1].isoformat()}"
                self._reader.error("test-clock", item, message, "write the times in ascending order; equal times are allowed")
            times.append(time)
        return tuple(times)

    def _crash(self, read: Read) -> Crash | None:
        text = read.values.get("crash_after")
        crash = parse_crash(text) if text is not None else None
        if text is not None and crash is None:
            remedy = "write batch 1, or batch 1 staged, decided or published"
            self._reader.error("bad-value", read.given["crash_after"][1], f"{self._owner.key('crash_after')} is {shorten(text)}", remedy)
        return crash

    def _changes(self, read: Read) -> tuple[VersionChange, ...]:
        node = read.values.get("changed")
        if node is None:
            return ()
        several = isinstance(node, Sequence)
        nodes = node.items if isinstance(node, Sequence) else [node]
        at: list[At] = [("changed", index) if several else ("changed",) for index in range(len(nodes))]
        changes = [self._change(inner, place) for inner, place in zip(nodes, at, strict=True)]
        return tuple(change for change in changes if change is not None)

    def _change(self, node: Node, at: At) -> VersionChange | None:
        read = self._sections.read(keys.CHANGED, node, self._owner.inner("changed", node.start))
        if read is None or "before" not in read.values:
            return None
        found = _BATCH.match(read.values["before"])
        if found is None or found[2] or found[1] == "1":
            message = f"{self._owner.key('changed.before')} is {shorten(read.values['before'])}"
            self._reader.error("bad-value", read.given["before"][1], message, "write batch 2, or a later one")
            return None
        patch = data_of(read.values["patch"]) if "patch" in read.values else {}
        if not isinstance(patch, dict) or bool(patch) == ("flow" in read.values):
            message = f"{self._owner.key('changed')} needs exactly one of `flow` and `patch`"
            self._reader.error("wrong-kind", node, message, "write flow: next.yaml, or patch: {steps: {…}}")
            return None
        return VersionChange(int(found[1]), read.values.get("flow", ""), patch, at)

    def _one_of(self, read: Read, node: Node, at: At) -> None:
        if len(read.given) > 1:
            message = f"{self._called(at)} has {' and '.join(f'`{name}`' for name in read.given)}"
            self._reader.error("twice", node, message, "keep one of them")

    def _called(self, at: At) -> str:
        """The name of a value in messages: `` `given.tweets` of test "…" ``, with the index of a row."""
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at)
        return f"`{path[1:]}` of {self._owner.called}"


def item_text(node: Node) -> str:
    """The text of a scalar; empty for other nodes."""
    return node.value if isinstance(node, Scalar) else ""
