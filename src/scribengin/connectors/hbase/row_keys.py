"""Row keys that are formed from columns by a template, such as `"{customer}/{id:12}"`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from scribengin.core.types import INTEGER_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from scribengin.core.types import Type

_PART = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")
_REVERSE = "reverse"


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: a sequence of texts and of columns (name, format)."""

    parts: tuple[str | tuple[str, str], ...]

    @staticmethod
    def of(text: str) -> Template:
        """Parse a template. Raises ValueError with the error text."""
        parts: list[str | tuple[str, str]] = []
        at = 0
        for found in _PART.finditer(text):
            parts += [text[at : found.start()]] if found.start() > at else []
            how = found[2] or ""
            if how and how != _REVERSE and not how.isdecimal():
                raise ValueError(f'"{found[0]}": after the colon, expected a number of digits or {_REVERSE}')
            parts.append((found[1].strip(), how))
            at = found.end()
        parts += [text[at:]] if text[at:] else []
        if stray := next((part for part in parts if isinstance(part, str) and ("{" in part or "}" in part)), None):
            raise ValueError(f'"{stray}" has a brace without a column name')
        return Template(tuple(parts))

    def unlike(self, key: Sequence[str], types: Mapping[str, Type]) -> list[str]:
        """Why different keys could give the same row key, or one key several row keys, one sentence per reason. `types` are the types of
        the known columns."""
        columns = {part[0]: part[1] for part in self.parts if isinstance(part, tuple)}
        beside = [(one[0], other[0]) for one, other in pairwise(self.parts) if isinstance(one, tuple) and isinstance(other, tuple)]
        filled = [name for name, how in columns.items() if how.isdecimal() and name in types]
        return [
            *(f'`row` names "{name}", which is not in `key`' for name in columns if name not in key),
            *(
                f'`row` does not contain "{name}", a part of `key`: rows with different keys would have the same row key'
                for name in key
                if name not in columns
            ),
            *(
                f'`row` has "{one}" and "{other}" side by side: x, yz and xy, z would have the same row key; write a text between them'
                for one, other in beside
            ),
            *(
                f'`row` pads "{name}" with zeros, but it is not an integer: 7 and 07 would have the same row key'
                for name in filled
                if types[name].name not in INTEGER_BITS
            ),
        ]

    def keys(self, columns: pa.RecordBatch) -> pa.Array:
        """The row key of each row, as bytes."""
        import pyarrow as pa
        import pyarrow.compute as pc

        parts = [part if isinstance(part, str) else _text(columns, *part) for part in self.parts]
        return pc.binary_join_element_wise(*parts, "").cast(pa.binary())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(part[0] for part in self.parts if isinstance(part, tuple))

    def columns(self, keys: pa.Array) -> dict[str, pa.Array]:
        """The inverse of `keys`: column → its part of each row key, as bytes; null if a row key does not match the template."""
        import pyarrow.compute as pc

        pattern = "".join(re.escape(part) if isinstance(part, str) else f"(?P<p{at}>.*?)" for at, part in enumerate(self.parts))
        found = pc.extract_regex(keys, f"(?s)^{pattern}$")
        given = {part: pc.struct_field(found, f"p{at}") for at, part in enumerate(self.parts) if isinstance(part, tuple)}
        return {name: _reversed(values) if how == _REVERSE else values for (name, how), values in given.items()}

    def torn(self, columns: pa.RecordBatch) -> dict[int, str]:
        """Row index → why its row key would be ambiguous: the value of a column contains the text that follows it in the template."""
        import pyarrow.compute as pc

        found: dict[int, str] = {}
        last = max((at for at, part in enumerate(self.parts) if isinstance(part, tuple)), default=0)
        for part, behind in pairwise(self.parts[:last]):
            if isinstance(part, str) or not isinstance(behind, str):
                continue
            for index in pc.indices_nonzero(pc.match_substring(_text(columns, *part), behind[0])).to_pylist():
                found[index] = (
                    f'column "{part[0]}" contains "{behind[0]}", the separator in `row`: rows with different keys could have the same '
                    "row key; use another separator"
                )
        return found


def _reversed(values: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.utf8_reverse(values.cast(pa.string())).cast(pa.binary())
    except pa.ArrowInvalid:  # bytes that are not valid text
        return pc.binary_reverse(values)


def _text(columns: pa.RecordBatch, name: str, how: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    from scribengin.connectors.hbase.cells import values_of

    text = values_of(columns.column(name), "text").cast(pa.string())
    return pc.utf8_reverse(text) if how == _REVERSE else pc.utf8_zero_fill(text, int(how)) if how else text
