"""Which rows make the native steps fail, found in one pass: the plan that Spark would run, with each of its expressions caught row by row.

Spark's optimised plan says which expressions a row meets, and in which order: filters that were pushed down, columns that nobody reads.
That plan is built once more with `TryEval` around every expression: an internal of Spark that gives null where its child raises.
So exactly the rows are found that Spark's ANSI mode fails for. Projections, filters, unions, generators and joins with tables are
understood; for all else, and where a condition of a join fails, `Unsupported` is raised and the search of `culprits` does it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from scribengin.spark.program import AT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

_OWN_AT, _FAULT, _VALUE = "_sg_own_at", "_sg_fault", "_sg_value"
_REUSE = "spark.sql.subexpressionElimination.enabled"
_PASS = ("Join", "Generate")
"""nodes behind which AT is still known"""


class Unsupported(Exception):
    """The plan has a node that is not understood; its name."""


@dataclass(frozen=True, slots=True)
class RowFault:
    """An expression that fails for a row, by the column that it makes ("" for a condition), and the only text that it reads."""

    column: str
    sql: str
    value: str | None = None

    @property
    def group(self) -> tuple[str, str]:
        """What is the same for all rows that fail alike."""
        return self.column, self.sql


def failing_rows(spark: SparkSession, frame: DataFrame) -> Mapping[int, RowFault]:
    """AT → what fails, of each row of `frame`, which reads rows that were persisted with their AT.

    Raises Unsupported, and what Spark raises where it is no row's expression that fails.
    """
    # else Spark computes what two expressions share before both, where nothing catches it
    before = spark.conf.get(_REUSE)
    spark.conf.set(_REUSE, "false")
    try:
        walk = _Walk(spark)
        plan = frame._jdf.queryExecution().optimizedPlan()
        walk.settled(walk.of(plan))
        if not walk.parts:
            return {}
        told = reduce(lambda a, b: a.unionAll(b), walk.parts).toArrow().to_pydict()
    finally:
        spark.conf.set(_REUSE, before or "true")
    found: dict[int, RowFault] = {}
    for at, index, value in zip(told[_OWN_AT], told[_FAULT], told[_VALUE], strict=True):
        column, sql = walk.faults[index]
        found.setdefault(at, RowFault(column, sql, value))
    return found


@dataclass
class _Walk:
    spark: SparkSession
    faults: list[tuple[str, str]] = field(default_factory=list)
    """(column, expression), by number"""
    parts: list[DataFrame] = field(default_factory=list)
    """AT, fault and value of rows that have failed"""

    def __post_init__(self) -> None:
        jvm: Any = self.spark._jvm
        self._jvm = jvm
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        self._to_column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
        self._name = getattr(getattr(self._expressions, "Literal$"), "MODULE$").apply("value")
        self._of_rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows

    def of(self, plan: Any) -> DataFrame:
        """What the plan gives, with the rows that fail in it: AT, fault and value behind its own columns."""
        match _kind(plan):
            case "Project":
                return self._project(plan)
            case "Filter":
                return self._filter(plan)
            case "Union":
                return reduce(lambda a, b: a.unionAll(b), [self.of(child) for child in _each(plan.children())])
            case kind if kind in _PASS:
                return self._passed(plan)
        if any(attribute.name() == AT for attribute in _each(plan.output())) and not plan.children().size():
            return self._begun(self._frame(plan))
        raise Unsupported(_kind(plan))

    def settled(self, df: DataFrame) -> None:
        """Take the failed rows out of what a plan gives."""
        self.parts.append(df.where(f"{_FAULT} IS NOT NULL").select(_OWN_AT, _FAULT, _VALUE))

    def _begun(self, df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sql

        none = [sql.expr(f"CAST(NULL AS {type_})").alias(name) for name, type_ in ((_FAULT, "INT"), (_VALUE, "STRING"))]
        # a copy, for the plan's own may be dropped on the way
        return df.select("*", sql.col(AT).alias(_OWN_AT), *none)

    def _project(self, plan: Any) -> DataFrame:
        from pyspark.sql import functions as sql

        df = self.of(plan.child())
        made, fault, value = [], sql.col(_FAULT), sql.col(_VALUE)
        for expression in _each(plan.projectList()):
            if _kind(expression) != "Alias" or _is_sure(expression.child()):
                made.append(self._column(expression))
                continue
            inner = expression.child()
            made.append(self._aliased(expression, sql.when(sql.col(_FAULT).isNull(), self._tried(inner))))
            failed = sql.col(_FAULT).isNull() & self._raises(inner)
            fault, value = self._noted(fault, value, failed, expression.name(), inner)
        return df.select(*made, sql.col(_OWN_AT), fault.alias(_FAULT), value.alias(_VALUE))

    def _filter(self, plan: Any) -> DataFrame:
        from pyspark.sql import functions as sql

        df = self.of(plan.child())
        fault, value, keeps = sql.col(_FAULT), sql.col(_VALUE), sql.lit(True)
        for condition in _in_order(_conjuncts(plan.condition())):
            # a part is asked only of rows that neither failed nor fell out before
            asked = fault.isNull() & keeps
            if not _is_sure(condition):
                failed = sql.when(asked, self._raises(condition)).otherwise(sql.lit(False))
                fault, value = self._noted(fault, value, failed, "", condition)
            held = sql.when(asked, self._tried(condition))
            keeps = sql.when(asked, sql.coalesce(held, sql.lit(False))).otherwise(keeps)
        others = [self._column(attribute) for attribute in _each(plan.output())]
        marked = df.select(*others, sql.col(_OWN_AT), fault.alias(_FAULT), value.alias(_VALUE), keeps.alias("_sg_keeps"))
        return marked.where(f"{_FAULT} IS NOT NULL OR _sg_keeps").drop("_sg_keeps")

    def _passed(self, plan: Any) -> DataFrame:
        children = list(_each(plan.children()))
        rows = [index for index, child in enumerate(children) if _has_at(child)]
        if len(rows) != 1:
            raise Unsupported(_kind(plan))
        df = self.of(children[rows[0]])
        self.settled(df)
        children[rows[0]] = df.where(f"{_FAULT} IS NULL")._jdf.queryExecution().analyzed()
        return self._frame(plan.withNewChildren(self._seq(children)))

    def _noted(self, fault: Any, value: Any, failed: Any, column: str, expression: Any) -> tuple[Any, Any]:
        from pyspark.sql import functions as sql

        self.faults.append((column, expression.sql()))
        read = list(_each(expression.references().toSeq()))
        text = self._column(read[0]) if len(read) == 1 and read[0].dataType().simpleString() == "string" else sql.lit(None).cast("string")
        first = fault.isNull() & failed
        return sql.when(first, sql.lit(len(self.faults) - 1)).otherwise(fault), sql.when(first, sql.substring(text, 1, 200)).otherwise(
            value
        )

    def _raises(self, expression: Any) -> Any:
        """A column that is true where the expression raises: a struct of it is never null by itself."""
        held = self._expressions.CreateNamedStruct(self._seq([self._name, expression]))
        return self._column(self._expressions.TryEval(held)).isNull()

    def _tried(self, expression: Any) -> Any:
        return self._column(self._expressions.TryEval(expression))

    def _aliased(self, alias: Any, column: Any) -> Any:
        """`column` under the name and the id of `alias`, by which the nodes above know it."""
        inner = self._jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc)
        return self._column(alias.withNewChildren(self._seq([inner])))

    def _column(self, expression: Any) -> Any:
        from pyspark.sql.classic.column import Column

        return Column(self._to_column(expression))

    def _frame(self, plan: Any) -> DataFrame:
        from pyspark.sql.classic.dataframe import DataFrame

        return DataFrame(self._of_rows(self.spark._jsparkSession, plan), self.spark)

    def _seq(self, values: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(values)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))


def _has_at(plan: Any) -> bool:
    return any(attribute.name() == AT for leaf in _each(plan.collectLeaves()) for attribute in _each(leaf.output()))


def _is_sure(expression: Any) -> bool:
    """A column as it is, a constant, or whether one is null: these never raise."""
    kind = _kind(expression)
    return kind in ("AttributeReference", "Literal") or (
        kind in ("IsNotNull", "IsNull") and _kind(expression.child()) == "AttributeReference"
    )


def _conjuncts(condition: Any) -> list[Any]:
    if _kind(condition) == "And":
        return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]
    return [condition]


def _in_order(conditions: list[Any]) -> list[Any]:
    """As Spark's generated code asks them: before each the ones that say that its columns are not null, what is left of these last."""
    checks = {each.child().exprId().id(): each for each in conditions if _kind(each) == "IsNotNull" and _is_sure(each)}
    order = []
    for condition in conditions:
        if _kind(condition) == "IsNotNull" and _is_sure(condition):
            continue
        ids = [attribute.exprId().id() for attribute in _each(condition.references().toSeq())]
        order += [checks.pop(id_) for id_ in ids if id_ in checks]
        order.append(condition)
    return [*order, *checks.values()]
