"""Reads a mapping with declared keys: reads known keys by their kind, and reports unknown and missing keys with a remedy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, assert_never

from scribengin.core.problems import did_you_mean, nearest
from scribengin.spec import keys, tier_keys
from scribengin.spec.foreign_terms import old_word, our_word, translate, type_word
from scribengin.spec.model import SchemaSpec, Watermark
from scribengin.spec.reader import fold, suggest
from scribengin.spec.values import (
    Bounds,
    comma_trouble,
    read_bool,
    read_bound,
    read_bytes,
    read_duration,
    read_float,
    read_group,
    read_int,
    read_int_or_word,
    read_labels,
    read_names,
    read_option,
    read_pairs,
    read_schema,
    read_selection,
    read_text_or_texts,
    read_texts,
    read_texts_by_name,
    read_watermark,
    read_words,
)
from scribengin.spec.yaml_document import Mapping, Node, Scalar, Sequence, shorten

if TYPE_CHECKING:
    from collections.abc import Collection
    from collections.abc import Mapping as Mapping_

    from scribengin.core.options import NodeType, Option
    from scribengin.spec.key import Key, Section
    from scribengin.spec.reader import DocumentReader

_VERY = 0.75
"""similarity (0 to 1) from which a word counts as a typing error, not as another word"""
_READ_AS = frozenset(
    {"inputs", "nodes", "section", "schema", "watermark", "columns", "expression", "expressions", "selection", "cases", "function"}
)
"""kinds whose value is read under the probably intended key, because other values refer to it or depend on it"""
_LIMIT = "max_"
"""how the names of limits of a Batch begin"""
_NODES = (keys.SOURCE, keys.STEP, keys.SINK, tier_keys.TIER, tier_keys.EDGE, tier_keys.GROUP, keys.ALERT)


@dataclass(frozen=True, slots=True)
class SectionOwner:
    """The owner of keys that are read, named in messages: `` `window.size` of step "g" ``. `start` is the offset of its declaration in the
    document. `id` is None if it has none, such as the flow itself."""

    kind: str
    start: int
    prefix: str = ""
    id: str | None = None

    @property
    def called(self) -> str:
        """Its kind, with its id if it has one."""
        return self.kind if self.id is None else f'{self.kind} "{self.id}"'

    def key(self, name: str) -> str:
        """The name of one of its keys in messages."""
        return f"`{self.prefix}{name}` of {self.called}"

    def inner(self, name: str, start: int) -> SectionOwner:
        """The owner of the keys of a nested section."""
        return replace(self, start=start, prefix=f"{self.prefix}{name}.")


@dataclass(slots=True)
class Read:
    """The content of a section: `values` of the keys that could be read, `given` all declared keys in the text."""

    values: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    given: dict[str, tuple[Scalar, Node]] = field(default_factory=dict)
    sound: bool = True
    """False if the section has an error"""


@dataclass(frozen=True, slots=True)
class _Types:
    """`known` is the type whose options are allowed beside the keys; `any` is True if the type is unknown."""

    known: NodeType | None
    any: bool


def _inputs_of(node: Node) -> list[str]:
    """The ids in `from:` of a step as written in the document, without branches."""
    given = node.entries.get("from") if isinstance(node, Mapping) else None
    items = [] if given is None else given[1].items if isinstance(given[1], Sequence) else [given[1]]
    return [item.value.partition(".")[0] for item in items if isinstance(item, Scalar)]


def _shown(option: Option, owner: SectionOwner) -> str:
    """The example value of an option, with the id of its node in place of that of the reference's sink. The option's name in capitals if
    the example has columns, which would be those of another flow."""
    if not option.example or "{" in option.example:
        return option.name.upper()
    return option.example.replace("kept", owner.id) if owner.id else option.example


class Sections:
    """Reads sections of one document. The types of all connectors are needed to find the type to which a misplaced key belongs."""

    def __init__(self, reader: DocumentReader, source_types: Mapping_[str, NodeType], sink_types: Mapping_[str, NodeType]) -> None:
        self.reader = reader
        self._types = {"source": source_types, "sink": sink_types}

    def read(
        self, section: Section, node: Node, owner: SectionOwner, *, of_type: NodeType | None = None, any_option: bool = False
    ) -> Read | None:
        """Read the section at `node`.

        Args:
            section: Its declaration.
            node: The node in the document.
            owner: Its name in messages.
            of_type: The type whose options it may have besides its keys.
            any_option: True if the type is unknown: then any key may be an option.

        Returns:
            The content; None if the node is not a mapping.
        """
        called = f"`{owner.prefix.rstrip('.')}` of {owner.called}" if owner.prefix else owner.called
        first = next((key for key in section.keys if key.required), section.keys[0])
        mapping = self.reader.mapping(node, called, f"{{{first.name}: {first.form}, …}}")
        if mapping is None:
            return None
        read = Read()
        before = self.reader.errors
        if section.filled and all(name.startswith("x-") for name in mapping.entries):
            self.reader.error("wrong-kind", mapping, f"{called} is empty", f"write {{{first.name}: {first.form}, …}}, or take it out")
        strange: list[tuple[Scalar, Node]] = []
        for name, (key_node, value) in mapping.entries.items():
            key = section.key(name)
            option = of_type.option(name) if of_type else None
            if name.startswith("x-"):
                continue
            if key is not None:
                read.given[name] = (key_node, value)
                found = self._value(key, value, key_node, owner)
                if found is not None:
                    read.values[name] = found
            elif option is not None:
                read.given[name] = (key_node, value)
                found = read_option(self.reader, option, value, owner.key(name))
                if found is not None:
                    read.options[name] = found
            elif any_option or not comma_trouble(self.reader, mapping, key_node, value, called):
                strange.append((key_node, value))
        for key_node, value in strange:  # only now it is known which keys are free
            self._unknown(key_node, value, section, owner, _Types(of_type, any_option), read)
        self._missing(section, read, owner, of_type)
        read.sound = self.reader.errors == before
        return read

    def type_of(self, role: str, node: Node, owner: SectionOwner) -> tuple[str | None, NodeType | None]:
        """(the value of `type:`, its declaration); an unknown type is reported."""
        known = self._types[role]
        entry = node.entries.get("type") if isinstance(node, Mapping) else None
        if entry is None:
            return None, None
        text = self.reader.text(entry[1], owner.key("type"), "files")
        if text is None or text in known:
            return text, known.get(text or "")
        other = self._types["sink" if role == "source" else "source"]
        message = f"{owner.called} has the unknown type {shorten(text)}"
        if text in other:
            message = f'{owner.called} has the type "{text}", which is only a {"sink" if role == "source" else "source"}'
        types = f"types of a {role} are {', '.join(sorted(known))}"
        remedy = (text not in other and type_word(text, known)) or suggest(text, known) or translate(text) or types
        self.reader.error("unknown-type", entry[1], message, remedy)
        return None, None

    def _value(self, key: Key, node: Node, key_node: Scalar, owner: SectionOwner) -> Any:
        reader, what = self.reader, owner.key(key.name)
        match key.kind:
            case "text" | "expression" | "column":
                return reader.text(node, what, key.form)
            case "raw":
                return reader.raw_text(node, what, key.form)
            case "int":
                return read_int(reader, node, what, key.form, Bounds(key.kind, key.low, key.high))
            case "int_or_word":
                return read_int_or_word(reader, node, what, key.form, Bounds("int", key.low, key.high), key.choices)
            case "float":
                return read_float(reader, node, what, key.form, Bounds(key.kind, key.low, key.high))
            case "bytes":
                return read_bytes(reader, node, what, key.form, Bounds(key.kind, key.low, key.high))
            case "bool":
                return read_bool(reader, node, what)
            case "choice":
                return reader.choice(node, what, key.choices, key.form)
            case "duration" if isinstance(node, Mapping) and key.section:
                return self.read(key.section, node, owner.inner(key.name, key_node.start))
            case "duration":
                return read_duration(reader, node, what, key.form, Bounds(key.kind, key.low, key.high))
            case "bound" if isinstance(node, Mapping) and key.section:
                return self.read(key.section, node, owner.inner(key.name, key_node.start))
            case "bound":
                return read_bound(reader, node, what, key.form)
            case "name":
                # the type is looked up, and reported if unknown, before the section is read
                return self.reader.name(node, what, key.form) if key.name != "type" else "type"
            case "columns" | "inputs":
                return read_texts(reader, node, what, key.form)
            case "names":
                return read_names(reader, node, what, key.form)
            case "expressions" | "times" | "cases":
                return read_pairs(reader, node, what, key.form)
            case "selection":
                return read_selection(reader, node, what, key.form)
            case "watermark":
                return self._watermark(key, node, key_node, owner)
            case "schema":
                return self._schema(key, node, key_node, owner)
            case "function" if isinstance(node, Mapping) and key.section:
                return self.read(key.section, node, owner.inner(key.name, key_node.start))
            case "function":
                return reader.text(node, what, key.form)
            case "secrets":
                return read_texts_by_name(reader, node, what, key.form, secret=True)
            case "settings":
                return read_texts_by_name(reader, node, what, key.form, secret=False)
            case "labels":
                return read_labels(reader, node, what, key.form)
            case "words":
                return read_words(reader, node, what, key.form)
            case "raws":
                return read_text_or_texts(reader, node, what, key.form)
            case "group":
                return read_group(reader, node, what, key.form)
            case "word_or_section" if not isinstance(node, Mapping):
                return reader.choice(node, what, key.choices, key.form)
            case "sections":
                assert key.section
                items = reader.items(node, what, key.form)
                inner = owner.inner(key.name, key_node.start)
                return None if items is None else [self.read(key.section, item, replace(inner, start=item.start)) for item in items]
            case "section" | "word_or_section":
                assert key.section
                return self.read(key.section, node, owner.inner(key.name, key_node.start))
            case "nodes":
                return self._nodes(node, what, key.form)
            case "own":
                return node
            case _:
                assert_never(key.kind)

    def _schema(self, key: Key, node: Node, key_node: Scalar, owner: SectionOwner) -> Any:
        if key.section is None:
            return read_schema(self.reader, node, owner.key(key.name))
        if not isinstance(node, Mapping):
            fields = read_schema(self.reader, node, owner.key(key.name))
            return SchemaSpec(fields) if fields else None
        read = self.read(key.section, node, owner.inner(key.name, key_node.start))
        return SchemaSpec(**read.values) if read and "fields" in read.values else None

    def _watermark(self, key: Key, node: Node, key_node: Scalar, owner: SectionOwner) -> Watermark | None:
        if key.section is None or not isinstance(node, Mapping):
            return read_watermark(self.reader, node, owner.key(key.name), key.form)
        read = self.read(key.section, node, owner.inner(key.name, key_node.start))
        if read is None or not {"column", "delay"} <= read.values.keys():
            return None
        given = read.values
        return Watermark(given["column"], given["delay"], given.get("ahead"), given.get("idle"))

    def _nodes(self, node: Node, what: str, form: str) -> Mapping | None:
        """Read a mapping of id to node. A list of nodes (with dashes before the ids) is reported once, and read as if it had no dashes."""
        if not isinstance(node, Sequence) or not node.items:
            return self.reader.mapping(node, what, form)
        entries: dict[str, tuple[Scalar, Node]] = {}
        for item in node.items:
            keys_ = list(item.entries.values()) if isinstance(item, Mapping) else []
            key, value = keys_[0] if keys_ else (None, None)
            if key is None or value is None or (len(keys_) > 1 and not (isinstance(value, Scalar) and value.plain and not value.value)):
                return self.reader.mapping(node, what, form)
            rest = Mapping({each.value: (each, of) for each, of in keys_[1:]}, keys_[1][0].start, flow=False) if len(keys_) > 1 else value
            entries[key.value] = (key, rest)
        first = next(iter(entries))
        self.reader.error("wrong-kind", node, f"{what} is a list, not a mapping", f'write "{first}:" without the dash')
        return Mapping(entries, node.start, flow=False)

    def _ids(self, owner: SectionOwner) -> list[str]:
        """The ids of the sources and steps that the owner can read: not itself, nor a step downstream of it, which would make a cycle."""
        root = self.reader.document.root
        entries = root.entries if isinstance(root, Mapping) else {}
        parts = [entries[name][1] for name in ("sources", "steps") if name in entries]
        nodes = {id_: node for part in parts if isinstance(part, Mapping) for id_, (_, node) in part.entries.items() if id_[:2] != "x-"}
        below, more = set[str](), {owner.id or ""}
        while more:
            below |= more
            more = {id_ for id_, node in nodes.items() if id_ not in below and not below.isdisjoint(_inputs_of(node))}
        return [id_ for id_ in nodes if id_ not in below]

    def remedy_to_add(self, key: Key, owner: SectionOwner) -> str:
        """The remedy for a missing required key."""
        if key.kind != "inputs":
            return f"add {key.name}: {key.form}"
        ids = self._ids(owner)
        if len(ids) == 1:
            return f"add {key.name}: {ids[0]}"
        shown = f"one of {', '.join(ids[:8])}{', …' * (len(ids) > 8)}" if ids else "the id of a source or of a step"
        return f"add {key.name}: with {shown}"

    def _missing(self, section: Section, read: Read, owner: SectionOwner, of_type: NodeType | None) -> None:
        wanted = [(key.name, self.remedy_to_add(key, owner)) for key in section.keys if key.required]
        wanted += (
            [(option.name, f"add {option.name}: {_shown(option, owner)}") for option in of_type.options if option.required]
            if of_type
            else []
        )
        by_member = of_type.by_member if of_type is not None and "to" in read.given else None
        by_group = by_member.name if by_member is not None and by_member.kind != "path" else None
        for name, remedy in wanted:
            if name not in read.given and name != by_group:
                of = f" (type {of_type.type})" if of_type and of_type.option(name) else ""
                message = f"{owner.called}{of} has no `{owner.prefix}{name}`"
                self.reader.error("missing-key", owner.start, message, remedy)

    def _unknown(self, at: Scalar, value: Node, section: Section, owner: SectionOwner, types: _Types, read: Read) -> None:
        """Report an unknown key with one error. If the intended key is clear, read the value under that key."""
        name, of_type = at.value, types.known
        why = dict(section.misplaced).get(name)
        if why:
            self.reader.error("key-misplaced", at, f"{owner.key(name)} {why}", "write it under `edges`")
            return
        options = of_type.options if of_type else ()
        known = [*section.names, *(option.name for option in options)]
        free = [each for each in known if each not in read.given]
        needed = {key.name for key in section.keys if key.required} | {option.name for option in options if option.required}
        meant = fold(name) if fold(name) in free else our_word(name, free)
        meant = meant or self._by_value(value, section, free)
        if types.any and meant is None and nearest(name, needed.intersection(free)) is None:
            return  # it may be an option of the unknown type
        near = did_you_mean(meant, free) if meant == fold(name) else old_word(name, free)
        if meant is not None and not near:
            near = f'did you mean "{meant}"?'
        if meant is None:
            meant = nearest(name, [each for each in free if each in needed]) or nearest(name, free, _VERY)
            near = f'did you mean "{meant}"?' if meant else ""
        if of_type:
            message = f'{owner.called} (type {of_type.type}) has no option "{name}"'
        else:
            message = f'{owner.called} has the unknown key "{owner.prefix}{name}"'
        set_already = nearest(name, read.given, _VERY) if meant is None else None
        remedy = near or (f'take it out: "{set_already}" is set already' if set_already else "")
        remedy = remedy or self._elsewhere(name, section, options) or did_you_mean(name, free) or translate(name)
        remedy = remedy or f"{'options and keys are' if of_type else 'keys here are'} {', '.join(known)}"
        self.reader.error("unknown-option" if of_type else "unknown-key", at, message, remedy)
        if meant is not None:
            self._read_as(meant, at, value, section, owner, of_type, read)

    def _read_as(
        self, meant: str, at: Scalar, value: Node, section: Section, owner: SectionOwner, of_type: NodeType | None, read: Read
    ) -> None:
        """Read a value under the intended key, so that no further error reports that key as missing."""
        read.given[meant] = (at, value)
        key, option = section.key(meant), of_type.option(meant) if of_type else None
        problems = self.reader.document.problems
        before = len(problems)
        found = None
        if key is not None:
            found = self._value(key, value, at, owner)
            if key.kind not in ("nodes", "section"):
                del problems[before:]  # the guess may be wrong
            if found is not None and key.kind in _READ_AS:
                read.values[meant] = found
        elif option is not None:
            found = read_option(self.reader, option, value, owner.key(meant))
            del problems[before:]
            if found is not None:
                read.options[meant] = found

    @staticmethod
    def _by_value(value: Node, section: Section, free: Collection[str]) -> str | None:
        """The only key of the section with this value among its choices: `kind: left` of a join."""
        text = value.value if isinstance(value, Scalar) else ""
        taking = [key.name for key in section.keys if key.name in free and (text in key.choices or our_word(text, key.choices))]
        return taking[0] if len(taking) == 1 else None

    def _elsewhere(self, name: str, section: Section, options: Collection[Option]) -> str:
        """The places where a misplaced key would be valid; of a limit, those of the node's own `options` that limit alike."""
        sections = [other for other in keys.SECTIONS if other not in tier_keys.PARTS or section in tier_keys.SECTIONS]
        others = [other for other in sections if other is not section and name in other.names]
        homes = [f"a{'n' * (other.called[0] in 'ae')} {other.called}" if other in _NODES else f"`{other.called}`" for other in others]
        if section not in tier_keys.SECTIONS:
            having = {role: [one.type for one in types.values() if one.option(name)] for role, types in self._types.items()}
            homes += [f"a {role} of type {', '.join(types)}" for role, types in having.items() if types]
        alike = [option.name for option in options if option.pace and option.name.startswith(_LIMIT)] if name.startswith(_LIMIT) else []
        instead = f"; here there is {' and '.join(alike)}" if alike else ""
        return f'"{name}" belongs to {" or ".join(homes)}{instead}' if homes else ""
