"""Names of indexes that contain a time of the row, such as `"orders-{ts:%Y.%m.%d}"`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

_COLUMN = re.compile(r"\{([^{}:]*)(?::([^{}]*))?\}")
_DIRECTIVE = re.compile("%(.?)")
_DIGITS = {"Y": 4, "m": 2, "d": 2, "H": 2, "G": 4, "V": 2, "j": 3}
"""strftime directives whose result has a fixed number of digits → that number"""
TYPES = ("TIMESTAMP", "DATE")
_EXAMPLE = 'write a column and how much of its time, such as "orders-{ts:%Y.%m.%d}"'


@dataclass(frozen=True, slots=True)
class TimeTemplate:
    """A parsed template: a text, the time of one column (in UTC) in the format `form`, and another text."""

    before: str
    column: str
    form: str
    behind: str

    @staticmethod
    def of(text: str) -> TimeTemplate | None:
        """Parse a template; None if `text` is the name of a single index. Raises ValueError with the error text."""
        if "{" not in text and "}" not in text:
            return None
        found = _COLUMN.search(text)
        if found is None or not found[1].strip() or not found[2]:
            raise ValueError(f'"{text}" has no column with a time format: {_EXAMPLE}')
        before, behind = text[: found.start()], text[found.end() :]
        if "{" in behind or "}" in before + behind:
            raise ValueError(f'"{text}" has more than one part in braces: {_EXAMPLE}')
        if not before:
            raise ValueError(f'"{text}" begins with a time, so any index of the cluster may match it; write a name before it')
        directives = _DIRECTIVE.findall(found[2])
        if unknown := [each for each in directives if each not in _DIGITS]:
            known = ", ".join(f"%{each}" for each in _DIGITS)
            raise ValueError(f'"%{unknown[0]}" in "{text}" is not known: {known}')
        if not directives:
            raise ValueError(f'"{text}" has no part of the time: {_EXAMPLE}')
        return TimeTemplate(before, found[1].strip(), found[2], behind)

    @property
    def wildcard(self) -> str:
        """A wildcard pattern that matches the template's indexes, and perhaps others."""
        return re.sub(r"\*+", "*", self._spelt(lambda _: "*", str))

    @property
    def title(self) -> str:
        """A name for the index template on the server, such as `orders-yyyy.mm.dd`."""
        return self._spelt(lambda letter: letter.lower() * _DIGITS[letter], str)

    def fits(self, name: str) -> bool:
        """True if the template can result in this name."""
        return re.fullmatch(self._spelt(lambda letter: rf"\d{{{_DIGITS[letter]}}}", re.escape), name, re.ASCII) is not None

    def of_rows(self, times: pa.Array) -> tuple[pa.Array, Mapping[int, str]]:
        """The index name of each row (STRING), null for a row without an index; and row index → reason, for the rows without one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        is_date = pa.types.is_date(times.type)
        wrong = dict.fromkeys(_those(pc.is_null(times)), f'the column "{self.column}" is null: the row has no index')
        ends = (date.min, date.max) if is_date else (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
        first, last = (pa.scalar(end, times.type) for end in ends)
        outside = pc.or_(pc.less(times, first), pc.greater(times, last))
        for index in _those(outside):
            wrong[index] = f'the column "{self.column}" is a time outside the years 1 to 9999: the row has no index'
        inside = pc.if_else(outside, None, times) if wrong else times
        # a time without a zone is formatted unchanged, as UTC, and needs no time zone data
        named = pc.strftime(inside.cast(pa.timestamp("s") if is_date else pa.timestamp("us")), format=self.form)
        return pc.binary_join_element_wise(self.before, named, self.behind, ""), wrong

    def _spelt(self, directive: Callable[[str], str], text: Callable[[str], str]) -> str:
        parts = _DIRECTIVE.split(self.form)  # texts, with the directives between them
        spelt = [directive(part) if index % 2 else text(part) for index, part in enumerate(parts)]
        return text(self.before) + "".join(spelt) + text(self.behind)


def _those(mask: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    indexes: list[int] = pc.indices_nonzero(mask.fill_null(False)).to_pylist()
    return indexes
