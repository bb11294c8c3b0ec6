"""A step of a flow as a node of a Python stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.errors import StepError
from scribengin.core.types import Field, Schema, Type
from scribengin.plan.engines import portable
from scribengin.plan.python_functions import tests_object
from scribengin.spark import native
from scribengin.spark.program import ParseNode, PythonNode, UnionNode, UtilitiesNode, VectorNode
from scribengin.spark.sieve import deciding_sieve
from scribengin.spec.functions import form_of
from scribengin.spec.model import Filter, Merge, Parse, Python, Select, Step, Utilities
from scribengin.vector.steps import VectorStep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.spark.program import StageNode
    from scribengin.spark.user_code import UserCode
    from scribengin.spec.model import Node


def step_node(
    step: Step, inputs: tuple[str, ...], code: UserCode, schema_of: Callable[[str], Schema], orders: Mapping[str, Mapping[str, Any]]
) -> StageNode:
    """`inputs` are those that the stage carries, `orders` as in BatchInputs. Raises StepError for what runs in Spark alone, and for a
    function that may not be reordered and of which only its module, once imported, could tell that."""
    schema_in = schema_of(step.inputs[0])
    match step.action:
        case Python() as action:
            form = form_of(action.function or code.load(action.reference))
            return PythonNode(
                step.id,
                inputs,
                action.reference,
                "batch" if form == "batch" else "record",
                schema_in,
                schema_of(step.id),
                action.branches,
                action.time_limit_s,
            )
        case Utilities() as action:
            return _utilities(step.id, action, inputs, code, (schema_in, schema_of(step.id)), orders.get(step.id, {}))
        case Parse(column, format_, fields, delimiter, null, cells, time):
            options = {"delimiter": delimiter, "null": null, "time": time} | dict(cells or ())
            return ParseNode(step.id, inputs, column, format_, fields, schema_in, schema_of(step.id), options)
        case Merge(origin=origin):
            return UnionNode(step.id, inputs, origin)
    raise StepError(f'step "{step.id}" cannot run in a Python stage: {type(step.action).__name__}')


def _utilities(
    step: str, action: Utilities, inputs: tuple[str, ...], code: UserCode, schemas: tuple[Schema, Schema], learned: Mapping[str, Any]
) -> UtilitiesNode:
    free = action.order == "free"
    forms: list[Literal["record", "batch"]] = []
    for index, reference in enumerate(action.references):
        function = action.function(index) or code.load(reference)
        form = form_of(function)
        if form == "frame":
            raise StepError(f'step "{step}": {reference} is a @frame function, which runs only in Spark', node=step)
        if free and (form != "record" or not tests_object(function)):
            raise StepError(
                f'step "{step}": {reference} is not annotated -> bool; `order: free` reorders only tests',
                remedy="annotate it if it only decides whether a record is kept, or set order: fixed",
                node=step,
            )
        forms.append(form)
    return UtilitiesNode(
        step, inputs, action.names, action.references, tuple(forms), free, *schemas, Python("").time_limit_s, learned if free else {}
    )


def vector_node(steps: Sequence[Step], schema_of: Callable[[str], Schema]) -> VectorNode | None:
    """A run of steps for the vector engine; None for no steps."""
    if not steps:
        return None
    given = schema_of(steps[0].inputs[0])
    sieve, decides = deciding_sieve(steps, given)
    made = tuple(_vector_step(step, schema_of) for step in steps)
    return VectorNode(steps[-1].id, steps[0].inputs, "+".join(step.id for step in steps), made, given, sieve, decides)


def _vector_step(step: Step, schema_of: Callable[[str], Schema]) -> VectorStep:
    given, made = schema_of(step.inputs[0]), schema_of(step.id)
    require = tuple((name, portable(sql, made, test=True)) for name, sql in step.require)
    match step.action:
        case Filter(predicate):
            return VectorStep(step.id, made, portable(predicate, given, test=True), require=require)
        case Select(columns):
            return VectorStep(step.id, made, None, tuple((name, portable(sql, given, test=False)) for name, sql in columns), require)
    raise StepError(f'step "{step.id}" cannot run in the vector engine: {type(step.action).__name__}')


def declared_schema(node: Node, schema_of: Callable[[str], Schema]) -> Schema:
    """The columns of a step outside of Spark, by its declaration or its inputs."""
    assert isinstance(node, Step)
    if node.schema is not None:
        return node.schema.fields
    if isinstance(node.action, Merge):
        together = native.union_schema(node.id, [(id_, schema_of(id_)) for id_ in node.inputs])
        origin = node.action.origin
        return together if origin is None else Schema((*together.fields, Field(origin, Type("STRING"), nullable=False)))
    inherited = schema_of(node.inputs[0])
    if isinstance(node.action, Parse):
        others = tuple(f for f in inherited.fields if f.name != node.action.column)
        return Schema((*others, *node.action.schema.fields))
    return inherited
