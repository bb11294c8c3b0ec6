"""Parses the text of a flow file to the model, with every Problem in file order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.types import METADATA, Field, Schema, Type, added_fields, with_added
from scribengin.spec import keys
from scribengin.spec.actions import read_action
from scribengin.spec.alerts import read_alerts
from scribengin.spec.model import PROFILE_TRIGGER_S, Defaults, EdgeProperties, Flow, MaxDead, RecordBound, SchemaSpec, Sink, Source, Step
from scribengin.spec.read_tests import read_tests
from scribengin.spec.reader import DocumentReader
from scribengin.spec.sections import Read, SectionOwner, Sections
from scribengin.spec.tiers import read_default_edge, read_parts, read_waters
from scribengin.spec.yaml_document import Document, Mapping, Node, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Mapping as Mapping_
    from pathlib import Path

    from scribengin.core.options import NodeType
    from scribengin.core.problems import Problem
    from scribengin.spec.places import Places
    from scribengin.spec.yaml_document import Node


# The columns of a source: those that it declares, and those that `metadata` and `partition_columns` add to them.


_TEXT = Schema((Field("value", Type("STRING")),))


def source_columns(reader: DocumentReader, read: Read, owner: SectionOwner) -> SchemaSpec | None:
    """The schema of a source with the columns that its options add. Reports a Problem for two columns of one name. None if the columns are
    unknown, or known only at the source."""
    declared: SchemaSpec | None = read.values.get("schema")
    if not added_fields(read.options) or not isinstance(read.options.get("format", "json"), str):
        return declared
    if declared is None and read.options.get("format") != "text":
        _check_unique_columns(reader, read, owner, ())
        return None
    spec = declared or SchemaSpec(_TEXT)
    _check_unique_columns(reader, read, owner, spec.fields.names)
    _types_fit(reader, read, owner, spec.fields)
    return replace(spec, fields=with_added(spec.fields, read.options))


def _node(read: Read, option: str, column: str) -> Node:
    node = read.given[option][1]
    return node.entries[column][1] if isinstance(node, Mapping) else node


def _check_unique_columns(reader: DocumentReader, read: Read, owner: SectionOwner, declared: Iterable[str]) -> None:
    """Report columns that are added by a list and have the name of another column: a data column with the same name is a different
    column."""
    metadata: dict[str, str] = read.options.get("metadata") or {}
    folders: dict[str, str] = read.options.get("partition_columns") or {}
    beside = {name.lower(): name for name in declared}
    for name, word in metadata.items():
        remedy = f"give it another name: metadata: {{{word}_of_record: {word}}}"
        if name.lower() in map(str.lower, folders):
            reader.error("twice", _node(read, "metadata", name), f'{owner.called} has "{name}" in metadata and partition_columns', remedy)
        elif name.lower() in beside and not (isinstance(read.given["metadata"][1], Mapping) and beside[name.lower()] == name):
            message = f'metadata of {owner.called} adds the column "{name}", and its schema has a column of that name'
            reader.error("twice", _node(read, "metadata", name), message, remedy)
    for name in folders:
        if name.lower() in beside and beside[name.lower()] != name:
            message = f'partition_columns of {owner.called} has "{name}", and the schema "{beside[name.lower()]}"'
            reader.error("twice", _node(read, "partition_columns", name), message, "write both names the same way")


def _types_fit(reader: DocumentReader, read: Read, owner: SectionOwner, declared: Schema) -> None:
    metadata: dict[str, str] = read.options.get("metadata") or {}
    folders: dict[str, str] = read.options.get("partition_columns") or {}
    for name, word in metadata.items():
        if name in declared and str(declared[name].type) not in METADATA[word]:
            message = f'the schema of {owner.called} has "{name}" as {declared[name].type}; {word} must be {" or ".join(METADATA[word])}'
            reader.error("bad-value", _node(read, "metadata", name), message, "correct its type, or leave it out of the schema")
    for field in added_fields({"partition_columns": folders}):
        type_ = declared[field.name].type if field.name in declared else field.type
        if folders[field.name] and type_ != field.type:
            message = f'partition_columns of {owner.called} has "{field.name}" as {field.type}, and the schema as {type_}'
            reader.error("bad-value", _node(read, "partition_columns", field.name), message, "write one type")
        elif type_.parts or type_.fields or type_.name == "BINARY":
            message = f'partition_columns of {owner.called} has "{field.name}", which is {type_}'
            reader.error(
                "bad-value",
                _node(read, "partition_columns", field.name),
                message,
                "use a type for a single value; a folder name cannot hold other types",
            )


_VERSION = 1
_EMITTING = ("aggregate", "sql", "python")
_KEEPING = ("aggregate", "sql", "dedupe", "join", "merge")
"""operations that may keep state"""
_SECTION_OF: dict[str, Literal["source", "step", "sink"]] = {"sources": "source", "steps": "step", "sinks": "sink"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """The result of parsing. `flow` is None only if the text is not a mapping; otherwise it has every node that could be read.

    With errors it can only be checked further, not run: `broken` names the nodes that have an error or could not be read, so that no check
    reports them as missing or incomplete.
    """

    flow: Flow | None
    problems: tuple[Problem, ...]
    places: Places
    unresolved: tuple[str, ...] = ()
    """the references `${…}` without a value on this machine: `env:NAME`, `secret:env/NAME`, `secret:file/PATH`"""
    broken: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    """the sections `tiers`, `edges`, `groups`, `defaults` with an error; those of `sources`, `steps`, `sinks` that are missing or could not
    be read at all"""

    @property
    def ok(self) -> bool:
        """True if there is no error."""
        return not any(problem.severity == "error" for problem in self.problems)


def parse_flow(
    text: str,
    file: str,
    *,
    folder: Path,
    source_types: Mapping_[str, NodeType],
    sink_types: Mapping_[str, NodeType],
    environment: Mapping_[str, str],
    code: Path | None = None,
) -> Parsed:
    """Parse a flow file.

    Args:
        text: Its text.
        file: Its name in problems.
        folder: The folder that its paths are relative to.
        source_types: The known types of sources.
        sink_types: The known types of sinks.
        environment: The values for `${env:…}`.
        code: The folder of its modules; None: `folder`.
    """
    document = Document(text, file)
    reader = DocumentReader(document, environment, folder)
    flow, broken, unread = None, frozenset[str](), frozenset[str]()
    if isinstance(document.root, Mapping):
        flow, broken, unread = _FlowReader(reader, Sections(reader, source_types, sink_types)).read(document.root)
        flow = replace(flow, code=code)
    elif not document.problems:
        found = kind_of(document.root) if document.root else "empty"
        remedy = "write version: 1, name, sources and sinks; `scribengin init` writes an example"
        document.problem("wrong-kind", document.root.start if document.root else 0, f"the flow file is {found}, not a mapping", remedy)
    problems = sorted(document.problems, key=lambda problem: problem.place)
    return Parsed(flow, tuple(problems), reader.places, tuple(reader.unresolved), broken, unread)


def _is_unread(read: Read, section: str) -> bool:
    """True if nothing could be read of a section, which then has an error already."""
    mapping: Mapping | None = read.values.get(section)
    return not mapping.entries if mapping is not None else section in read.given or section != "steps"


class _FlowReader:
    """Reads the sections of one file."""

    def __init__(self, reader: DocumentReader, sections: Sections) -> None:
        self._reader = reader
        self._sections = sections
        self._broken: set[str] = set()
        self._ids: dict[str, str] = {}

    def read(self, root: Mapping) -> tuple[Flow, frozenset[str], frozenset[str]]:
        read = self._sections.read(keys.FLOW, root, SectionOwner("the flow", root.start))
        assert read is not None
        self._check_version(read)
        sources = self._nodes(read, "sources", self._source)
        steps = self._nodes(read, "steps", self._step)
        sinks = self._nodes(read, "sinks", self._sink)
        defaults, sound = self._defaults(read)
        parts = read_parts(self._reader, self._sections, read, defaults.edge)
        tests, test_files = read_tests(self._reader, self._sections, read.values["tests"]) if "tests" in read.values else ((), ())
        flow = Flow(
            name=read.values.get("name", "flow"),
            sources=sources,
            steps=steps,
            sinks=sinks,
            about=read.values.get("about", ""),
            defaults=defaults,
            tiers=parts.tiers,
            agent_tiers=parts.agent_tiers,
            edges=parts.edges,
            groups=parts.groups,
            max_delay_s=read.values.get("max_delay"),
            max_dead=self._max_dead(read),
            alerts=read_alerts(self._reader, self._sections, read),
            labels=read.values.get("labels") or {},
            tests=tests,
            test_files=test_files,
            version=_VERSION,
            folder=self._reader.folder,
        )
        unread = parts.unread | {section for section in _SECTION_OF if _is_unread(read, section)}
        return flow, frozenset(self._broken), unread if sound else unread | {"defaults"}

    def _defaults(self, read: Read) -> tuple[Defaults, bool]:
        """(the values, True if they have no error)."""
        given: Read | None = read.values.get("defaults")
        if given is None:
            return Defaults(), "defaults" not in read.given
        values, before = given.values, self._reader.errors
        edge: Read | None = values.get("edge")
        retain: Read | float | None = values.get("retain")
        owner = SectionOwner("the flow", read.given["defaults"][0].start, "defaults.edge.")
        plain = Defaults(profile=values.get("profile", "balanced"))
        defaults = Defaults(
            values.get("delivery", plain.delivery),
            values.get("on_error", plain.on_error),
            values.get("trigger", PROFILE_TRIGGER_S[plain.profile]),
            retain.values.get("age") if isinstance(retain, Read) else retain,
            retain.values.get("size") if isinstance(retain, Read) else None,
            plain.profile,
            read_default_edge(self._reader, edge, owner) if edge else EdgeProperties(),
            values.get("trace", 0.0),
            values.get("standby", plain.standby),
            values.get("engine", plain.engine),
            values.get("late", plain.late),
        )
        return defaults, given.sound and self._reader.errors == before

    def _max_dead(self, read: Read) -> MaxDead | None:
        value: Read | RecordBound | None = read.values.get("max_dead")
        if not isinstance(value, Read):
            return None if value is None else MaxDead(value, value)
        if value.sound and not {"batch", "run"} & value.given.keys():
            message = "`max_dead` of the flow has neither `batch` nor `run`, so it sets no limit"
            self._reader.error("missing-key", read.given["max_dead"][0], message, "add run: 1%")
        return MaxDead(**value.values)

    def _check_version(self, read: Read) -> None:
        version = read.values.get("version", _VERSION)
        if version != _VERSION:
            message = f"the flow file has version {version}; this Scribengin reads version {_VERSION}"
            self._reader.error("version", read.given["version"][1], message, f"write version: {_VERSION}")

    def _nodes(self, read: Read, section: str, read_node: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        mapping: Mapping | None = read.values.get(section)
        for id_, (key, value) in (mapping.entries if mapping else {}).items():
            if id_.startswith("x-"):
                continue
            owner = SectionOwner(_SECTION_OF[section], key.start, id=id_)
            before = self._reader.errors
            self._reader.check_name(id_, key, f"the id of a {_SECTION_OF[section]}")
            if id_ in self._ids:
                message = f"{owner.called} has the same id as a {self._ids[id_]}; ids of sources, steps and sinks must be unique"
                self._reader.error("id-twice", key, message, "give one of the two another id")
            node = read_node(id_, value, owner)
            if node is not None and id_ not in self._ids:
                found[id_] = node
            if self._reader.errors > before:
                self._broken.add(id_)
            self._ids.setdefault(id_, _SECTION_OF[section])
        if mapping is not None and not mapping.entries:
            example = next(key.form for key in keys.FLOW.keys if key.name == section)
            self._reader.error("wrong-kind", mapping, f"{section} of the flow is empty", f"write {section}: {example}, or take the key out")
        return found

    def _source(self, id_: str, node: Node, owner: SectionOwner) -> Source | None:
        type_, declared = self._sections.type_of("source", node, owner)
        read = self._sections.read(keys.SOURCE, node, owner, of_type=declared, any_option=declared is None)
        if read is None or type_ is None:
            return None
        values = read.values
        return Source(
            id_,
            type_,
            read.options,
            source_columns(self._reader, read, owner),
            values.get("watermark"),
            values.get("static", False),
            values.get("on_error"),
            **read_waters(self._reader, read, owner),
        )

    def _sink(self, id_: str, node: Node, owner: SectionOwner) -> Sink | None:
        type_, declared = self._sections.type_of("sink", node, owner)
        read = self._sections.read(keys.SINK, node, owner, of_type=declared, any_option=declared is None)
        if read is None or type_ is None or "from" not in read.values:
            return None
        values = read.values
        return Sink(
            id_,
            values["from"],
            type_,
            read.options,
            values.get("together"),
            values.get("trigger"),
            values.get("delivery"),
            values.get("to"),
        )

    def _step(self, id_: str, node: Node, owner: SectionOwner) -> Step | None:
        read = self._sections.read(keys.STEP, node, owner)
        if read is None:
            return None
        done = read_action(self._reader, read, owner)
        if done is None or "from" not in read.values:
            return None
        operation, action = done
        values = read.values
        if "schema" in read.given and operation not in ("python", "utilities"):
            message = f"{owner.called} has `schema`, which is valid only with python or utilities; {operation} defines its own columns"
            self._reader.error("key-misplaced", read.given["schema"][0], message, "take it out")
        if "late" in read.given and operation not in _KEEPING:
            message = f"{owner.called} has `late`, which is valid only for steps that keep state; {operation} keeps no state"
            self._reader.error("key-misplaced", read.given["late"][0], message, "take it out")
        return Step(
            id_,
            values["from"],
            action,
            values.get("require", ()),
            values.get("on_error"),
            self._emit(read, operation, owner),
            values.get("watermark"),
            values.get("schema"),
            values.get("late"),
        )

    def _emit(self, read: Read, operation: str, owner: SectionOwner) -> Any:
        inner: Read | None = read.values.get("aggregate")
        if "emit" in read.given and operation not in _EMITTING:
            message = f"{owner.called} has `emit`, which is valid only for aggregations; {operation} does not aggregate"
            self._reader.error("key-misplaced", read.given["emit"][0], message, "take it out")
        if inner is not None and "emit" in inner.given:
            if "emit" in read.given:
                message = f"{owner.called} has `emit` twice: beside aggregate and inside it"
                self._reader.error("twice", read.given["emit"][0], message, "keep one of the two")
            return inner.values.get("emit", "append")
        return read.values.get("emit", "append")
