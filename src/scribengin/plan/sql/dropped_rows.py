"""Finds the places where a query drops rows without a predicate that says so: functions that make several rows of one, joins, sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import exp

_DIALECT = "spark"
_OTHERS = ("variant_explode",)
"""such functions that have no class in sqlglot"""


class Exploded(NamedTuple):
    """A call that makes no row if its argument is null or empty, and the form that makes one."""

    call: str
    argument: str
    keeping: str


def exploded(tree: exp.Expr | None) -> Iterator[Exploded]:
    """Each such call, once."""
    from sqlglot import exp

    told = set()
    for node in tree.walk() if tree is not None else ():
        name = _name(node)
        if not name or _is_never_empty(node):
            continue
        argument = (node.expressions[0] if isinstance(node, exp.Anonymous) else node.this).sql(_DIALECT)
        view = node.parent if isinstance(node.parent, exp.Lateral) else None
        if view is not None and (view.args.get("outer") or _is_kept(view)):
            continue
        call = f"{name}({argument})"
        if view is not None and view.args.get("view"):
            each = Exploded(f"LATERAL VIEW {call}", argument, "LATERAL VIEW OUTER")
        else:
            each = Exploded(call, argument, f"{name}_outer({argument})")
        if each not in told:
            told.add(each)
            yield each


def inner_joins(tree: exp.Expr | None) -> Iterator[list[str]]:
    """The columns in the condition of each join that drops rows without a match."""
    from sqlglot import exp

    for join in tree.find_all(exp.Join) if tree is not None else ():
        condition, using = join.args.get("on"), join.args.get("using") or ()
        if join.side or join.kind not in ("", "INNER") or isinstance(join.this, exp.Lateral):
            continue
        compared = [column.sql(_DIALECT) for column in condition.find_all(exp.Column)] if condition is not None else []
        found = [*compared, *(each.name for each in using)]
        if found:
            yield list(dict.fromkeys(found))


def merged_sets(tree: exp.Expr | None) -> Iterator[str]:
    """`INTERSECT` and `EXCEPT` that output equal rows once."""
    from sqlglot import exp

    for found in tree.find_all(exp.Intersect, exp.Except) if tree is not None else ():
        if found.args.get("distinct"):
            yield "INTERSECT" if isinstance(found, exp.Intersect) else "EXCEPT"


def _name(node: exp.Expr) -> str:
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return node.name.lower() if node.name.lower() in _OTHERS and node.expressions else ""
    kinds: dict[type[exp.Expr], str] = {exp.Explode: "explode", exp.Posexplode: "posexplode", exp.Inline: "inline"}
    return kinds.get(type(node), "")  # not their subclasses, which are the outer forms


def _is_kept(view: exp.Lateral) -> bool:
    """True for `LEFT JOIN LATERAL explode(…)`."""
    from sqlglot import exp

    return isinstance(view.parent, exp.Join) and view.parent.side == "LEFT"


def _is_never_empty(node: exp.Expr) -> bool:
    """True for `explode(array(1, 2))`."""
    from sqlglot import exp

    return isinstance(node.this, exp.Array) and bool(node.this.expressions)
