"""The declaration of a key and of a section; `keys` and `tier_keys` contain the declarations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

_FORMS: dict[str, str] = {
    "inputs": "ID",
    "column": "COLUMN",
    "columns": "[COLUMN]",
    "expression": "SQL",
    "expressions": "{NAME: SQL}",
    "selection": "[COLUMN, SQL AS COLUMN]",
    "cases": "{BRANCH: SQL, otherwise: BRANCH}",
    "times": "{INPUT: COLUMN, INPUT: COLUMN}",
    "watermark": "COLUMN 10m",
    "schema": '"COLUMN TYPE, COLUMN TYPE"',
    "nodes": "{ID: {…}}",
    "names": "[NAME]",
    "function": '"module:function"',
}
"""placeholders that errors show for values with names from the user's flow; an example would name nodes of another flow"""

KeyKind = Literal[
    "text",
    "raw",
    "int",
    "int_or_word",
    "bool",
    "choice",
    "duration",
    "name",
    "column",
    "columns",
    "inputs",
    "expression",
    "expressions",
    "selection",
    "cases",
    "times",
    "names",
    "watermark",
    "schema",
    "function",
    "section",
    "word_or_section",
    "sections",
    "nodes",
    "bytes",
    "float",
    "group",
    "secrets",
    "settings",
    "labels",
    "bound",
    "words",
    "raws",
    "own",
]
"""The kind of a value.

`int_or_word`: a whole number or one of `choices`. `raw`: text that may be blank in quotes. `expression`: SQL text. `expressions`: a mapping
of name to SQL. `selection`: that or a list. `cases`: the branches of a route. `times`: a mapping of input to column. `names`: a list of
branch names. `columns`: one column or a list. `inputs`: one id or a list. `function`: `module:name` or a section. `nodes`: a mapping of id
to section. `word_or_section`: one of `choices` or a section. `sections`: a list of sections. `bytes`: a size. `group`: `NAME` or
`NAME.MEMBER`. `secrets`: a mapping of text to text that may be secret. `labels`: a mapping of names to texts. `bound`: a percentage or a
number. `words`: a list of texts in order. `raws`: a text or such a list, blank or not. `own`: a separate reader reads the node.
"""


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `doc` is the description for users, without a capital and a full stop; `example` is YAML text."""

    name: str
    kind: KeyKind
    doc: str
    example: str
    required: bool = False
    choices: tuple[str, ...] = ()
    default: str = ""
    section: Section | None = None
    low: float | None = None
    high: float | None = None
    placeholder: str = ""
    """shown by errors in place of the example, if that is a text of the author's own"""

    @property
    def form(self) -> str:
        """The value as errors show it: the example, with capitals in place of names from the user's flow."""
        if self.kind == "section" and self.section is not None:
            inner = [key for key in self.section.keys if key.required] or list(self.section.keys[:1])
            return f"{{{', '.join(f'{key.name}: {key.form}' for key in inner)}}}"
        if self.kind == "name" and self.name != "type":
            return "NAME"
        return self.placeholder or _FORMS.get(self.kind, self.example)


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with declared keys. `called` is its name in messages; `filled` is True if an empty mapping is an error."""

    called: str
    doc: str
    keys: tuple[Key, ...] = field(default=())
    filled: bool = False
    misplaced: tuple[tuple[str, str], ...] = ()
    """(key that this section has in another place, the reason that it is not allowed here)"""

    def key(self, name: str) -> Key | None:
        """The declaration of that key, or None."""
        return next((key for key in self.keys if key.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the keys that this version reads."""
        return tuple(key.name for key in self.keys)
