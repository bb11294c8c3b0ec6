"""Column types and schemas: `id BIGINT, user STRING NOT NULL, tags ARRAY<STRING>`, independent of Spark and of pyarrow.

The names of types are those of Spark SQL. A Schema is a value: `formats` builds decoders from it, and `arrow_schema` converts it to Arrow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa


PRIMITIVES = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP")
_ALIASES = {
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "REAL": "FLOAT",
    "BOOL": "BOOLEAN",
    "VARCHAR": "STRING",
    "TEXT": "STRING",
}
INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


@dataclass(frozen=True, slots=True)
class Type:
    """A column type. `name` is a primitive, DECIMAL, ARRAY, MAP or STRUCT.

    DECIMAL has precision and scale; ARRAY one part; MAP two (key, value); STRUCT its fields.
    """

    name: str
    precision: int = 0
    scale: int = 0
    parts: tuple[Type, ...] = ()
    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        return self._shown(_quoted)

    def ddl(self) -> str:
        """The type for Spark's parser; see `Schema.ddl`."""
        return self._shown(in_backticks)

    def _shown(self, named: Callable[[str], str]) -> str:
        match self.name:
            case "DECIMAL":
                return f"DECIMAL({self.precision},{self.scale})"
            case "ARRAY" | "MAP":
                return f"{self.name}<{', '.join(part._shown(named) for part in self.parts)}>"
            case "STRUCT":
                parts = (f"{named(field.name)}: {field.type._shown(named)}{'' if field.nullable else ' NOT NULL'}" for field in self.fields)
                return f"STRUCT<{', '.join(parts)}>"
            case _:
                return self.name


@dataclass(frozen=True, slots=True)
class Field:
    """A named column of a Schema or a STRUCT."""

    name: str
    type: Type
    nullable: bool = True

    def __str__(self) -> str:
        return f"{_quoted(self.name)} {self.type}{'' if self.nullable else ' NOT NULL'}"


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns in order. Their names are unique; upper and lower case differ."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        """The DDL text; `parse_schema(str(schema)) == schema`."""
        return ", ".join(map(str, self.fields))

    def ddl(self) -> str:
        """The columns for Spark's parser. Each name is in backticks, because the parser accepts fewer names without them."""
        return ", ".join(f"{in_backticks(f.name)} {f.type.ddl()}{'' if f.nullable else ' NOT NULL'}" for f in self.fields)

    def __contains__(self, name: object) -> bool:
        return any(field.name == name for field in self.fields)

    def __getitem__(self, name: str) -> Field:
        """The field of that name; KeyError if there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(field.name for field in self.fields)


class SchemaSyntaxError(ValueError):
    """The text is not a valid schema; `offset` counts characters from the start of the text."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


def parse_schema(text: str) -> Schema:
    """Parse a schema in DDL. Raises SchemaSyntaxError with the offset of the error.

    >>> str(parse_schema("id bigint NOT NULL, tags array<string>"))
    'id BIGINT NOT NULL, tags ARRAY<STRING>'
    """
    reader = _Reader(text)
    fields = reader.fields(end="")
    if not fields:
        raise SchemaSyntaxError("a schema needs at least one column, such as: id BIGINT", 0)
    return Schema(fields)


_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|(\w+)|(.))", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z_]\w*\Z")


def _quoted(name: str) -> str:
    return name if _PLAIN.match(name) else in_backticks(name)


def in_backticks(name: str) -> str:
    """A name in backticks, with which Spark's parser accepts any name.

    >>> in_backticks("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, int]] = []
        for found in _TOKEN.finditer(text):
            index = found.lastindex
            if index is not None and found.group(index).strip():
                self._tokens.append((found.group(index), found.start(index)))
        self._tokens.append(("", len(text)))
        self._next = 0

    def _peek(self) -> str:
        return self._tokens[self._next][0]

    def _take(self) -> tuple[str, int]:
        token = self._tokens[self._next]
        if token[0]:
            self._next += 1
        return token

    def _expect(self, wanted: str) -> None:
        found, offset = self._take()
        if found.upper() != wanted:
            raise SchemaSyntaxError(f'expected "{wanted}", found {_shown(found)}', offset)

    def fields(self, end: str) -> tuple[Field, ...]:
        fields: dict[str, Field] = {}
        while self._peek() != end:
            if fields:
                self._expect(",")
            offset = self._tokens[self._next][1]
            field = self._field()
            if field.name in fields:
                raise SchemaSyntaxError(f'column "{field.name}" is duplicated', offset)
            fields[field.name] = field
        return tuple(fields.values())

    def _field(self) -> Field:
        name, offset = self._take()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not re.match(r"\w+\Z", name):
            raise SchemaSyntaxError(f"expected a column name, found {_shown(name)}", offset)
        if self._peek() == ":":
            self._take()
        type_ = self._type()
        if self._peek().upper() == "NOT":
            self._take()
            self._expect("NULL")
            return Field(name, type_, nullable=False)
        return Field(name, type_)

    def _type(self) -> Type:
        word, offset = self._take()
        name = _ALIASES.get(word.upper(), word.upper())
        if name in PRIMITIVES:
            return Type(name)
        match name:
            case "DECIMAL" | "NUMERIC":
                return self._decimal(offset)
            case "ARRAY":
                self._expect("<")
                part = self._type()
                self._expect(">")
                return Type("ARRAY", parts=(part,))
            case "MAP":
                self._expect("<")
                key = self._type()
                self._expect(",")
                value = self._type()
                self._expect(">")
                return Type("MAP", parts=(key, value))
            case "STRUCT":
                self._expect("<")
                fields = self.fields(end=">")
                self._expect(">")
                return Type("STRUCT", fields=fields)
        known = ", ".join((*PRIMITIVES, "DECIMAL(p,s)", "ARRAY<T>", "MAP<K, V>", "STRUCT<name: T>"))
        raise SchemaSyntaxError(f"unknown type {_shown(word)}; types are {known}", offset)

    def _decimal(self, offset: int) -> Type:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._take()
            precision = self._number()
            if self._peek() == ",":
                self._take()
                scale = self._number()
            self._expect(")")
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise SchemaSyntaxError(f"DECIMAL({precision},{scale}) is out of range: 1 to 38 digits, scale at most as many", offset)
        return Type("DECIMAL", precision=precision, scale=scale)

    def _number(self) -> int:
        word, offset = self._take()
        if not word.isdigit():
            raise SchemaSyntaxError(f"expected a number, found {_shown(word)}", offset)
        return int(word)


def _shown(word: str) -> str:
    return f'"{word}"' if word else "the end"


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a Schema; a TIMESTAMP has microseconds in UTC."""
    import pyarrow as pa

    return pa.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: Field) -> pa.Field:
    import pyarrow as pa

    return pa.field(field.name, arrow_type(field.type), nullable=field.nullable)


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type of a Type."""
    import pyarrow as pa

    match type_.name:
        case "DECIMAL":
            return pa.decimal128(type_.precision, type_.scale)
        case "ARRAY":
            return pa.list_(arrow_type(type_.parts[0]))
        case "MAP":
            return pa.map_(arrow_type(type_.parts[0]), arrow_type(type_.parts[1]))
        case "STRUCT":
            return pa.struct([_arrow_field(field) for field in type_.fields])
    simple: dict[str, pa.DataType] = {
        "BOOLEAN": pa.bool_(),
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    }
    return simple[type_.name]


def schema_of_arrow(schema: pa.Schema) -> Schema:
    """The Schema of an Arrow schema. Raises ValueError, which names the column, for a type that is not supported."""
    return Schema(tuple(Field(field.name, type_of_arrow(field.type, field.name), field.nullable) for field in schema))


def type_of_arrow(type_: pa.DataType, column: str = "") -> Type:
    """The Type of an Arrow type. Raises ValueError, which names `column`, for a type that is not supported."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_decimal(type_):
        return Type("DECIMAL", precision=type_.precision, scale=type_.scale)
    if kinds.is_list(type_) or kinds.is_large_list(type_):
        return Type("ARRAY", parts=(type_of_arrow(type_.value_type, column),))
    if kinds.is_map(type_):
        return Type("MAP", parts=(type_of_arrow(type_.key_type, column), type_of_arrow(type_.item_type, column)))
    if kinds.is_struct(type_):
        return Type("STRUCT", fields=tuple(Field(f.name, type_of_arrow(f.type, column), f.nullable) for f in type_))
    if kinds.is_timestamp(type_):
        return Type("TIMESTAMP")
    if kinds.is_large_string(type_) or kinds.is_string(type_):
        return Type("STRING")
    if kinds.is_large_binary(type_) or kinds.is_binary(type_):
        return Type("BINARY")
    simple = {
        "bool": "BOOLEAN",
        "int8": "TINYINT",
        "int16": "SMALLINT",
        "int32": "INT",
        "int64": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "date32[day]": "DATE",
    }
    if str(type_) in simple:
        return Type(simple[str(type_)])
    raise ValueError(f'column "{column}" has the type {type_}, which is not supported as a column type')


# The columns that a source adds to those of its data: `metadata` adds where a record was read, `partition_columns` adds values from
# folder names.


METADATA: Mapping[str, tuple[str, ...]] = {
    "file": ("STRING",),
    "file_name": ("STRING",),
    "file_size": ("BIGINT",),
    "file_time": ("TIMESTAMP",),
    "line": ("BIGINT", "INT"),
    "offset": ("BIGINT",),
    "row": ("BIGINT", "INT"),
    "topic": ("STRING",),
    "partition": ("INT", "BIGINT"),
    "timestamp": ("TIMESTAMP",),
    "key": ("STRING", "BINARY"),
    "headers": ("MAP<STRING, BINARY>",),
    "agent": ("STRING",),
    "host": ("STRING",),
    "incarnation": ("STRING",),
    "number": ("BIGINT",),
    "read_at": ("TIMESTAMP",),
    "tags": ("MAP<STRING, STRING>",),
}
"""what `metadata` can name, over all sources, and the types that such a column may have; the first one applies if the schema does not
declare it"""


def added_fields(options: Mapping[str, Any]) -> tuple[Field, ...]:
    """The columns that `partition_columns` and `metadata` of a source add if its schema does not have them, in that order."""
    taken, folders = options.get("metadata") or {}, options.get("partition_columns") or {}
    return (
        *(Field(name, _type(type_ or "STRING")) for name, type_ in folders.items()),
        *(Field(name, _type(METADATA[word][0])) for name, word in taken.items()),
    )


def with_added(schema: Schema, options: Mapping[str, Any]) -> Schema:
    """The schema with the missing `added_fields` appended."""
    return Schema((*schema.fields, *(field for field in added_fields(options) if field.name not in schema)))


def without_added(schema: Schema, options: Mapping[str, Any]) -> Schema:
    """The columns of the record itself, without the added ones."""
    added = {field.name for field in added_fields(options)}
    return Schema(tuple(field for field in schema.fields if field.name not in added))


def _type(text: str) -> Type:
    return parse_schema(f"x {text}").fields[0].type
