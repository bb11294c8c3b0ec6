from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from declared_flows import flows
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.spec.dump import flow_data
from scribengin.spec.json_schema import flow_schema
from scribengin.spec.problem_entry import ProblemEntry, example_flow
from scribengin.spec.problems import CATALOG
from tests.design_flow import TWEETS

if TYPE_CHECKING:
    from scribengin.spec.model import Flow

SCHEMA = flow_schema(source_types(), sink_types())
VALIDATOR = Draft202012Validator(SCHEMA)

TOLD = {
    "wrong-kind",
    "unknown-key",
    "missing-key",
    "bad-name",
    "unknown-type",
    "unknown-option",
    "bad-value",
    "bad-unit",
    "bad-choice",
    "out-of-range",
    "twice",
    "operation-missing",
    "operation-twice",
    "function-syntax",
    "yaml-comma",
}


def errors(text: str) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(YAML(typ="safe").load(text))]


def test_it_is_a_json_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_flow_of_the_design_is_valid() -> None:
    assert errors(TWEETS) == []


@settings(max_examples=50)
@given(flows())
def test_every_flow_that_the_parser_takes_is_valid(flow: Flow) -> None:
    data = flow_data(flow, source_types=source_types(), sink_types=sink_types())
    assert [error.message for error in VALIDATOR.iter_errors(data)] == []


@pytest.mark.parametrize("entry", [entry for entry in CATALOG if entry.code in TOLD], ids=lambda entry: entry.code)
def test_what_keys_and_kinds_tell_an_editor_tells_too(entry: ProblemEntry) -> None:
    assert errors(example_flow(entry))


@pytest.mark.parametrize(
    "step",
    [
        "{from: a, route: {big: x > 1, otherwise: small}}",
        "{from: [a, b]}",
        "{from: a, select: [id]}",
        "{from: a, x-note: {any: thing}, filter: true}",
        '{from: a, python: {function: "m:f", branches: [b], time_limit: 5s}, schema: {fields: id BIGINT}}',
        '{from: [a, b], join: {key: id, time: {a: ts, b: at}, within: "${env:WITHIN}"}}',
    ],
)
def test_short_and_long_forms_are_valid(step: str, parse: Any) -> None:
    text = f"version: 1\nname: shop\nsources: {{a: {{type: sequence}}}}\nsteps:\n  s: {step}\nsinks: {{k: {{from: s, type: console}}}}\n"
    assert errors(text) == []
    assert parse(text, environment={"WITHIN": "5m"}).ok


def test_an_editor_is_told_what_each_key_means() -> None:
    known = SCHEMA["properties"]["steps"]["patternProperties"]["^[a-z][a-z0-9_]{0,62}$"]["properties"]
    assert all(known[name].get("description") for name in known)
