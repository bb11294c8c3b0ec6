"""Options: one declaration (name, type, default, doc, example) feeds the parser, error texts, JSON Schema and reference pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.abilities import ABILITIES, ability_faults
from scribengin.core.errors import DeclarationError
from scribengin.core.problems import suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scribengin.core.abilities import BuiltKind
    from scribengin.core.problems import Problem
    from scribengin.core.types import Schema

OptionKind = Literal[
    "text", "int", "float", "bool", "duration", "bytes", "choice", "list", "words", "schema", "path", "map", "columns", "section"
]
"""The kind of a value: `duration` becomes seconds (float), `bytes` an int, `schema` a core Schema, `list` a tuple of texts, `words` a text
or a tuple of texts that may be blank, `map` a mapping of text to text, `path` a text that is resolved against the flow's folder when it is
used, `columns` a mapping of columns to words, or a list of columns, each of which stands for the word of its own name if there are
`choices`, and for no word otherwise; `section` a mapping with keys of its own (`Option.keys`). A `list` with such keys contains texts and
sections."""

REQUIRED: Any = object()
"""The default of a required option."""
GIVEN = "given"
"""the key in `Option.adds` and `Option.alone` of a section that applies if the flow file contains the section"""
ALONE_BY_KEY = "a row replaces the earlier row with its key, which may be in another member and would remain there"
"""a value of `Option.alone` for output that is written by key"""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a source, sink or step. `doc` is a sentence for people; `example` a YAML scalar."""

    name: str
    kind: OptionKind
    doc: str
    default: Any = None
    choices: tuple[str, ...] = ()
    example: str = ""
    secret: bool = False
    low: float | None = None
    high: float | None = None
    pace: bool = False
    """True if it only sets sizes or rates: another value does not change rows"""
    formats: tuple[str, ...] = ()
    """the values of `format:` for which it has an effect; empty for all"""
    by_profile: Mapping[str, Any] = field(default_factory=dict)
    """profile → its default under that profile, if that differs"""
    deliveries: tuple[str, ...] = ()
    """the values of `delivery:` for which it has an effect; empty for all"""
    by_member: bool = False
    """for a sink: True if each member of a group sets it, by its `at`. A path of the sink is then one below that of the member; the texts
    of a list are separated by commas"""
    at_check: Callable[[str], tuple[str, str] | None] | None = None
    """for such an option: returns (what is wrong with an `at`, what to do) in place of `check`"""
    alone: Mapping[Any, str] = field(default_factory=dict)
    """for a sink that can write to a group: value → why it cannot with that value, as a clause; for a section: GIVEN → why"""
    of_streams: bool = False
    """for a source: True if it has no effect with `static: true`, because all data is read then"""
    travels: bool = False
    """True if the path, or each value of the map, is a file that belongs to the flow: a package includes it"""
    adds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """for a choice: value → abilities that the node has in addition to those of its type; for a section: GIVEN → these"""
    check: Callable[[Any], tuple[str, str] | None] | None = None
    """returns (what is wrong with a value, what to do), or None for a valid one"""
    keys: tuple[Option, ...] = ()
    """for a section: the keys that it may have, with single values"""

    def key(self, name: str) -> Option | None:
        """The declaration of a key of the section, or None."""
        return next((key for key in self.keys if key.name == name), None)

    def filled(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a section, with the defaults for the keys that it does not have."""
        return {key.name: given.get(key.name, key.default) for key in self.keys}

    def added(self, value: Any) -> frozenset[str]:
        """The abilities that this value adds to a node."""
        return self.adds.get(self._key_of(value), frozenset()) if self.adds else frozenset()

    def keeps_alone(self, value: Any) -> str:
        """Why a sink with this value cannot write to a group; empty if the option allows it."""
        return self.alone.get(self._key_of(value), "") if self.alone else ""

    def member_value(self, at: str) -> Any:
        """The value of a `by_member` option that the `at` of a member stands for. Not for a path: there the sink's own is appended."""
        return tuple(each.strip() for each in at.split(",") if each.strip()) if self.kind == "list" else at

    def member_fault(self, at: str) -> tuple[str, str] | None:
        """(what is wrong with the `at` of a member, what to do); None if it is valid."""
        if self.at_check is not None:
            return self.at_check(at)
        return None if self.check is None else self.check(self.member_value(at))

    def _key_of(self, value: Any) -> Any:
        return (GIVEN if value is not None else "") if self.kind == "section" else value

    @property
    def required(self) -> bool:
        """True if the flow must set it."""
        return self.default is REQUIRED


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """How a node names a prefix of an object store, or a folder of HDFS."""

    option: str
    """the option with the url"""
    schemes: tuple[str, ...]
    """how it may begin: `s3`"""
    write: str
    """what to write where it is not valid, a clause"""
    or_folder: bool = False
    """True if it may also be a local folder, which is a text without `://`"""

    def names_store(self, text: str) -> bool:
        """Whether a value of the option is a url."""
        return not self.or_folder or "://" in text


@dataclass(frozen=True, slots=True)
class NodeType:
    """The declaration of a connector's source or sink: the value of `type:`, and the options."""

    type: str
    role: Literal["source", "sink"]
    doc: str
    options: tuple[Option, ...]
    abilities: frozenset[str] = field(default_factory=frozenset)
    """What it promises, and what its objects have: names of `core.abilities.ABILITIES`. `Option.adds` has those that depend on options"""
    varying: frozenset[str] = field(default_factory=frozenset)
    """those of its abilities that an object of it may lack, by more than an option, such as the delivery: the engine asks the object"""
    internal: bool = False
    """True if a flow file cannot name it"""
    check: Callable[[Mapping[str, Any]], tuple[str, str, str] | None] | None = None
    """for options that are valid one by one: returns (the one to change, what is wrong with it in this combination, what to do), or None.
    Its argument has all defaults filled in"""
    alone: str = ""
    """for a sink without a `by_member` option: why it cannot write to a group, as a clause"""
    fixed_columns: Schema | None = None
    """for a source: the columns that it always has, so that a flow declares none"""
    untyped: str = ""
    """for a source whose data does not declare its columns, so that a flow must: what it reads, for messages (`documents`)"""
    ends_by: str = ""
    """for a `bounded` source: the option without which its data has no end"""
    locations: str | Callable[[Mapping[str, Any]], Iterator[Any]] = ""
    """a function from the options of a node, as the flow file has them, to its places outside of the flow
    (`connectors.addresses.DataLocation`), which serve to find flows that share a topic, a table or objects; itself, or as
    `module:function`. Empty if there are none, or if the option `path` is the folder"""
    store_url: StoreUrl | None = None
    """of a node with a place in a store: the option that names it, by which sinks that write to one prefix are found"""
    closed_for_good: str = ""
    """of a sink with folders by event time: why a closed one cannot be reopened, a clause; empty if it can"""
    maintained_as: Literal["", "folder", "store", "table"] = ""
    """for a sink: what maintenance finds where it writes: files as of `type: files` below its `path`, objects and manifests as of `type:
    objects` below its `url`, a table as of `type: delta` at its `path`; empty if it needs no maintenance"""
    checks: tuple[str | Callable[[Any], Iterator[Problem]], ...] = ()
    """the rules of this type for a flow with such a node, in order: functions of a `connectors.check_contract.CheckedNode`, each itself, or
    as `module:function`, which is loaded only for such a flow"""

    def __post_init__(self) -> None:
        """Raises DeclarationError for an ability that there is not, or not for this role, and for one that varies and is not declared."""
        known = {name for name, ability in ABILITIES.items() if self.role in ability.roles}
        added = [abilities for option in self.options for abilities in option.adds.values()]
        for name in sorted(self.abilities.union(*added) - known):
            raise DeclarationError(
                f'{self.role} type "{self.type}" declares the unknown ability "{name}"',
                remedy=suggestion(name, sorted(known), f"abilities of a {self.role} are"),
            )
        for name in sorted(self.varying.difference(self.abilities, *added)):
            raise DeclarationError(
                f'{self.role} type "{self.type}" declares that "{name}" varies, which it does not declare',
                remedy="add it to `abilities`, or to `adds` of an option",
            )

    def check_built(self, kind: BuiltKind, built: object, given: Mapping[str, Any]) -> None:
        """Raises DeclarationError if an object of a node with these options has otherwise than the type declares."""
        for fault in ability_faults(self.able(given), kind, built, varying=self.varying):
            raise DeclarationError(
                f'{self.role} type "{self.type}" {fault}', remedy="its connector must declare the abilities that it has, and no others"
            )

    def option(self, name: str) -> Option | None:
        """The declaration of the option with that name, or None."""
        return next((option for option in self.options if option.name == name), None)

    @property
    def by_member(self) -> Option | None:
        """The option that each member of a group sets for itself; None if the sink cannot write to a group. A sink that can is built as a
        `connectors.group.contract.MemberSink`."""
        return next((option for option in self.options if option.by_member), None)

    def kept_alone(self, given: Mapping[str, Any]) -> tuple[Option | None, str] | None:
        """Why a sink with these options cannot write to a group: the option that prevents it, or None if it is the type itself, and the
        reason. None as a whole if the sink can write to one."""
        if self.by_member is None:
            return None, self.alone or "its connector does not define the option that `at` of a member sets"
        kept = ((option, option.keeps_alone(given.get(option.name, option.default))) for option in self.options)
        return next(((option, why) for option, why in kept if why), None)

    def able(self, given: Mapping[str, Any]) -> frozenset[str]:
        """The abilities of a node with these options."""
        added = (option.added(given.get(option.name, option.default)) for option in self.options if option.adds)
        return self.abilities.union(*added)

    def without(self, ability: str, given: Mapping[str, Any]) -> str:
        """The name, in messages, of a node with these options that lacks an ability: its type, and the choice with which it lacks it."""
        for option in self.options:
            if any(ability in added for added in option.adds.values()):
                return f"{self.type} with {option.name}: {given.get(option.name, option.default)}"
        return self.type

    def filled(self, given: Mapping[str, Any], profile: str = "balanced") -> dict[str, Any]:
        """`given` with the profile's defaults for what it does not contain. Required options must have been checked before."""
        return {option.name: given.get(option.name, option.by_profile.get(profile, option.default)) for option in self.options}


def loaded(declared: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function that a NodeType declares itself, or as `module:function`. Raises ImportError or AttributeError if there is none."""
    function: Callable[..., Any] = resolve_name(declared) if isinstance(declared, str) else declared
    return function


def keys_check(*known: str) -> Callable[[Mapping[str, Any]], tuple[str, str] | None]:
    """A function for `Option.check` of a map, which allows only these keys."""

    def check(value: Mapping[str, Any]) -> tuple[str, str] | None:
        unknown = next((name for name in value if name not in known), None)
        return None if unknown is None else (f'has the unknown option "{unknown}"', f"expected one of {', '.join(known)}")

    return check
