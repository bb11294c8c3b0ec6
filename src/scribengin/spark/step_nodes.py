"""A step of a flow as a node of a Python stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.errors import StepError
from scribengin.spark.program import ParseNode, PythonNode, UnionNode
from scribengin.spec.functions import form_of
from scribengin.spec.model import Merge, Parse, Python

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.core.types import Schema
    from scribengin.spark.program import StageNode
    from scribengin.spark.user_code import UserCode
    from scribengin.spec.model import Step


def step_node(step: Step, inputs: tuple[str, ...], code: UserCode, schema_of: Callable[[str], Schema]) -> StageNode:
    """`inputs` are those that the stage carries. Raises StepError for what runs in Spark alone."""
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
        case Parse(column, format_, fields, delimiter, null):
            options = {"delimiter": delimiter, "null": null}
            return ParseNode(step.id, inputs, column, format_, fields, schema_in, schema_of(step.id), options)
        case Merge(origin=origin):
            return UnionNode(step.id, inputs, origin)
    raise StepError(f'step "{step.id}" cannot run in a Python stage: {type(step.action).__name__}')
