"""A portable expression as a value that is sent to executors: independent of sqlglot and pyarrow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

_FALLIBLE = frozenset({"+", "-", "*", "/", "%", "neg", "cast"})
"""operations that may fail in Spark's ANSI mode, for some values"""
_FLOATS = frozenset({"+", "-", "*", "neg"})
"""those of `_FALLIBLE` that cannot fail for a DOUBLE"""
_BY = frozenset({"/", "%"})
"""those of `_FALLIBLE` that cannot fail if the divisor is a constant other than 0 (constants are not negative: there is no division by
-1)"""


@dataclass(frozen=True)
class Expression:
    """An operation `op` over `args`; `type` is the SQL type of its result (`BIGINT`). `value` is what else the operation needs: the
    column's name, the literal, the pattern."""

    op: str
    type: str
    args: tuple[Expression, ...] = ()
    value: Any = None

    @cached_property
    def fallible(self) -> bool:
        """True if it may fail on some rows: then it is evaluated only on rows on which Spark would evaluate it."""
        own = self.op in _FALLIBLE and not (self.type == "DOUBLE" and self.op in _FLOATS) and not self._divides_by_constant
        return own or any(arg.fallible for arg in self.args)

    @property
    def _divides_by_constant(self) -> bool:
        return self.op in _BY and self.args[1].op == "literal" and bool(self.args[1].value)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The names of the columns that it reads."""
        own = frozenset({str(self.value)}) if self.op == "column" else frozenset()
        return own.union(*(arg.columns for arg in self.args))
