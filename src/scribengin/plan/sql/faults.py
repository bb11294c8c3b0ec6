"""Finds SQL that is likely to fail at run time: casts that can fail, functions that Spark does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.problems import did_you_mean
from scribengin.plan.columns import Columns, find
from scribengin.plan.sql.functions import AGGREGATES, FUNCTIONS, REFUSED
from scribengin.plan.sql.parse import SqlFault, Text, keyword, start_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import exp


def unknown_functions(text: Text, *, own: bool) -> Iterator[SqlFault]:
    """Calls of functions that neither Spark 4.2 nor sqlglot has. It is an error if the name is one typing error away from that of a Spark
    function; else a warning, because settings of the session may define functions.

    Args:
        text: The expression or query.
        own: True if the flow may define functions itself: then all are warnings.
    """
    from sqlglot import exp

    if text.tree is None:
        return
    for call in text.tree.find_all(exp.Anonymous):
        name = call.name.lower()
        if name not in FUNCTIONS:
            meant = sorted(known for known in FUNCTIONS if _is_slip(name, known))
            remedy = did_you_mean(name, meant) or did_you_mean(name, FUNCTIONS) or "see Spark's list of SQL functions, or use a python step"
            certain = bool(meant) and not own and not isinstance(call.parent, exp.Dot)
            place = call.meta.get("start", start_of(call) or 0)
            yield SqlFault("sql-function-unknown", place, f'Spark has no function "{call.name}"', remedy, "error" if certain else "warning")


def _is_slip(word: str, known: str) -> bool:
    """True if one character is missing, superfluous or different, or two are swapped. Another digit means another function: `sha3`."""
    start = _common_prefix(word, known)
    word, known = word[start:], known[start:]
    end = _common_prefix(word[::-1], known[::-1])
    word, known = word[: len(word) - end], known[: len(known) - end]
    turned = len(word) == 2 and word == known[::-1]
    return (max(len(word), len(known)) == 1 or turned) and not any(map(str.isdigit, word + known))


def _common_prefix(word: str, known: str) -> int:
    """The length of the common prefix."""
    return next((nth for nth, (one, other) in enumerate(zip(word, known, strict=False)) if one != other), min(len(word), len(known)))


def refused_functions(text: Text) -> Iterator[SqlFault]:
    """Calls of functions that have another meaning here than in Spark, or another result in each run."""
    from sqlglot import exp

    if text.tree is None:
        return
    for call in text.tree.find_all(exp.Func):
        names = [call.name] if isinstance(call, exp.Anonymous) else call.sql_names()
        name = next((name.lower() for name in names if name.lower() in REFUSED), None)
        if name is None:
            continue
        offsets = dict(reversed(text.tokens))
        written = next((word for word in map(str.upper, (name, *names)) if word in offsets), name.upper())
        why, instead = REFUSED[name]
        place = call.meta.get("start", offsets.get(written, start_of(call) or 0))
        yield SqlFault("sql-function-refused", place, f"{written.lower()}() {why}", instead)


def risky_casts(text: Text, columns: Columns) -> Iterator[SqlFault]:
    """Casts of STRING columns to types that not every text fits: in Spark's ANSI mode one bad row makes the cast fail."""
    from sqlglot import exp

    if text.tree is None:
        return
    for cast in text.tree.find_all(exp.Cast):
        tried = isinstance(cast, exp.TryCast) and cast.args.get("safe")
        column = find(columns, cast.this.name) if isinstance(cast.this, exp.Column) else None
        if tried or column is None or column.type is None or column.type.name != "STRING":
            continue
        target = cast.to.sql("spark")
        if target in ("STRING", "BINARY"):
            continue
        offset = start_of(cast) or 0
        word = "CAST" if any(token == "CAST" for token, _ in text.tokens) else ""
        place = keyword(text, word, before=offset) if word else offset
        message = f'casting "{column.name}" from STRING to {target} fails if the text is not a valid {target}'
        yield SqlFault(
            "sql-cast-can-fail", place, message, f"write try_cast({column.name} AS {target}): null if it is not valid", "warning"
        )


def has_aggregate(text: Text) -> bool:
    """True if the expression aggregates rows (other than by a window over them)."""
    from sqlglot import exp

    return text.tree is not None and any(_aggregates(node) for node in text.tree.walk() if isinstance(node, exp.Func))


def _aggregates(node: exp.Expr) -> bool:
    from sqlglot import exp

    if isinstance(node.parent, exp.Window):
        return False
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES)
