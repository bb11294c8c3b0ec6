"""What the document allows, and what it does not, is answered in order: no 5xx, answers as declared, mistakes in their one form."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from harness.pages.openapi import openapi_document
from scribengin.client.problems import MEDIA_TYPE
from scribengin.client.transport import KEY
from scribengin.control import flow_requests
from scribengin.registry.records import TierSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Bench, Served

EACH = 6
"""requests of each kind to each operation, under `long`"""
FEW = 3
"""the first of them: what is allowed, or what is not, to one operation after the other"""
CHECKS = (not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance)
OPERATIONS = [found.ok() for found in schemathesis.openapi.from_dict(openapi_document()).get_all_operations()]
ENDING = [operation for operation in OPERATIONS if operation.path != "/v1/events"]
THERE = {"flow": "numbers", "tier": "main"}


EACH_TIME = {
    "bring_package": "the same bytes under the same hash",
    "check_text": "changes nothing",
    "close_session": "a session that is over stays over",
    "make_token": "what it answers is written down nowhere",
    "plan_topology": "changes nothing",
    "open_session": "what it answers is written down nowhere",
    "plan_text": "the same text makes the same package",
    "progress": "tells how things are",
    "test_alerts": "sends a test each time",
}
"""what is no read and takes no idempotency key, and why"""


@schemathesis.serializer("application/zip")
def as_bytes(_context: Any, value: Any) -> bytes:
    """Packages of whatever comes."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def test_the_key_and_the_token_stand_at_what_takes_them() -> None:
    keyless, open_ = set(), set()
    for operations in openapi_document()["paths"].values():
        for method, operation in operations.items():
            if method not in ("get", "head") and not any(each["name"] == KEY for each in operation.get("parameters", ())):
                keyless.add(operation["operationId"])
            if "security" not in operation:
                open_.add(operation["operationId"])
    assert keyless == EACH_TIME.keys()
    assert open_ == {"live", "ready"}


def test_no_body_takes_a_word_that_it_does_not_know() -> None:
    """A mistyped filter of a purge would purge all."""
    document = openapi_document()
    bodies = [
        content["schema"]["$ref"].rpartition("/")[2]
        for operations in document["paths"].values()
        for operation in operations.values()
        for media_type, content in operation.get("requestBody", {"content": {}})["content"].items()
        if media_type == "application/json"
    ]
    assert len(bodies) > 15
    assert [body for body in bodies if document["components"]["schemas"][body].get("additionalProperties") is not False] == []


@pytest.fixture(scope="module")
def master(long_bench: Bench) -> Served:
    submission = flow_requests.Submission("numbers", "0" * 64, "flow.yaml", "/base", {"main": TierSpec()})
    flow_requests.apply(long_bench.person, submission, state=lambda _: "/state", by="bob")
    return long_bench.master()


def asked() -> Iterator[Any]:
    for number, operation in enumerate(ENDING):
        for kind, mode in enumerate(GenerationMode):
            name = f"{operation.label}-{mode.value}"
            wrong = number % 2 and (operation.body or operation.query or operation.path_parameters)
            if kind == bool(wrong):  # of what takes nothing nothing can be wrong
                yield pytest.param(mode, operation, FEW, id=name)
            yield pytest.param(mode, operation, EACH, id=f"{name}-more", marks=pytest.mark.long)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mode", "operation", "requests"), list(asked()))
def test_whatever_comes_is_answered_in_order(master: Served, mode: GenerationMode, operation: Any, requests: int) -> None:
    named = {name: value for name, value in THERE.items() if f"{{{name}}}" in operation.path}
    known: dict[str, Any] = {"path_parameters": named} if named and mode is GenerationMode.POSITIVE else {}

    @settings(max_examples=requests, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(mode, **known))
    def ask(case: Any) -> None:
        answer = case.call(base_url=master.url, timeout=60)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == [MEDIA_TYPE]
            assert case.method == "HEAD" or answer.json()["code"] == answer.headers["scribengin-problem"][0]

    with suppress(Unsatisfiable):  # of what takes nothing nothing can be wrong
        ask()
