"""Conversion between errors and RFC 9457 problems: the only place for both directions, so that CLI and API report the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from scribengin.core.errors import (
    EnvironmentFault,
    Exit,
    FencedError,
    InputError,
    Refused,
    ScribenginError,
    StateError,
    Unreachable,
)
from scribengin.core.problems import Place, Problem
from scribengin.registry.contract import Conflict, Forbidden, Unsettled

MEDIA_TYPE = "application/problem+json"
CODE = "Scribengin-Problem"
"""the header with the problem's code, for answers to HEAD, which have no body"""
Kind = Literal["input", "refused", "environment", "unreachable", "unsettled", "state", "fenced", "conflict", "forbidden", "failed"]
"""the branch of the tree of errors; `core.errors` describes each and its exit status"""


class Conflicted(ScribenginError):
    """The record is not the one that was read: nothing was written. Read it again and decide again."""

    code = "registry-conflict"


_KINDS: Mapping[Kind, type[ScribenginError]] = {
    "refused": Refused,
    "unsettled": Unsettled,
    "unreachable": Unreachable,
    "forbidden": Forbidden,
    "environment": EnvironmentFault,
    "fenced": FencedError,
    "state": StateError,
    "conflict": Conflicted,
    "failed": ScribenginError,
}
"""the first matching class applies; InputError, which carries problems, is handled separately"""
_BY_KIND: Mapping[Kind, int] = {
    "input": 422,
    "refused": 409,
    "unsettled": 503,
    "unreachable": 503,
    "forbidden": 503,
    "environment": 507,
    "fenced": 503,
    "state": 409,
    "conflict": 409,
    "failed": 500,
}
STATUSES: Mapping[str, int] = {
    "not-found": 404,
    "flow-unknown": 404,
    "version-unknown": 404,
    "package-missing": 404,
    "record-missing": 404,
    "package-hash": 422,
    "package-damaged": 422,
    "package-newer": 422,
    "package-name": 422,
    "package-size": 413,
    "body-large": 413,
    "body": 422,
    "flow-path": 422,
    "flow-name": 422,
    "registry-large": 413,
    "registry-path": 422,
    "registry-kept": 403,
    "revision-stale": 412,
    "key-used": 422,
    "key-busy": 409,
    "token-missing": 401,
    "token-unknown": 401,
    "session-over": 401,
    "role-lacking": 403,
    "origin-foreign": 403,
    "method": 405,
    "request": 400,
    "parameter": 422,
    "plan-late": 422,
    "plan-needed": 428,
    "answer-late": 503,
    "answer-large": 422,
    "page-unknown": 422,
    "member-unknown": 404,
    "group-unknown": 404,
    "group-cost": 422,
    "too-many": 429,
    "bug": 500,
    "claim-wrong": 403,
    "bad-progress": 422,
    "alert-unknown": 404,
    "worker-unknown": 404,
    "node-unknown": 404,
    "agent-unknown": 404,
    "tier-unknown": 404,
    "quota-unknown": 404,
    "token-unknown-name": 404,
    "operation-unknown": 404,
    "query-unknown": 404,
    "quota-name": 422,
    "peer-unknown": 404,
    "peer-name": 422,
    "quota-value": 422,
    "token-name": 422,
    "token-until": 422,
}
"""code → HTTP status, if it differs from that of the kind"""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of several faults. `pointer` is a JSON pointer into the request's body, if the fault is there; `file`, `line` and `column` give
    its place in the package."""

    code: str
    detail: str
    remedy: str = ""
    severity: str = "error"
    pointer: str = ""
    file: str = ""
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """An RFC 9457 problem. `code` is stable; `kind` and `exit` say how a command would end. The top level shows the first fault, `problems`
    all of them."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    kind: Kind = "failed"
    exit: int = int(Exit.FAILED)
    remedy: str = ""
    node: str = ""
    pointer: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    problems: tuple[Fault, ...] = ()


class PointedError(InputError):
    """A request's body, or a parameter of it, is invalid; `faults` give the places."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__([_problem_of(fault) for fault in faults])
        self.faults = faults
        self.code = faults[0].code


def to_problem(error: ScribenginError) -> ProblemDetails:
    """Convert an error into a problem."""
    if isinstance(error, InputError):
        faults = error.faults if isinstance(error, PointedError) else tuple(map(_fault_of, error.problems))
        first = next((fault for fault in faults if fault.severity == "error"), faults[0])
        place = {"pointer": first.pointer, "file": first.file, "line": first.line, "column": first.column}
        return _problem(first.code, first.detail, "input", error.exit, remedy=first.remedy, problems=faults, **place)
    place = {} if error.place is None else {"file": error.place.file, "line": error.place.line, "column": error.place.column}
    return _problem(error.code, error.message, _kind_of(error), error.exit, remedy=error.remedy, node=error.node, **place)


def to_error(problem: ProblemDetails) -> ScribenginError:
    """Convert a problem back into the error that it was made from: class, code, text, remedy and place."""
    if problem.kind == "input" and problem.problems:
        return PointedError(problem.problems)
    error = _KINDS.get(problem.kind, ScribenginError)(problem.detail, remedy=problem.remedy, code=problem.code, node=problem.node)
    if problem.file:
        error.place = Place(problem.file, problem.line, problem.column)
    if problem.exit in set(Exit):
        error.exit = Exit(problem.exit)
    return error


def encode(problem: ProblemDetails) -> bytes:
    """A problem as the body of an answer."""
    return msgspec.json.encode(problem)


def decode(data: bytes, status: int, code: str = "answer") -> ProblemDetails:
    """Parse the body of an answer as a problem.

    Args:
        data: the body.
        status: the HTTP status of the answer.
        code: the problem's code if the body is not a problem.

    Returns:
        The problem; one that describes the answer if the body is not a problem.
    """
    try:
        return msgspec.json.decode(data, type=ProblemDetails)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = data[:200].decode(errors="replace").strip()
        kind: Kind = "unreachable" if status >= 500 else "refused"
        found = f'"{text}"' if text else "nothing"
        return _problem(
            code,
            f"status {status} without a problem: {found}",
            kind,
            Exit.ENVIRONMENT if status >= 500 else Exit.INPUT,
            remedy="check that the address is that of a master",
        )


def _problem(code: str, detail: str, kind: Kind, exit: Exit, **more: object) -> ProblemDetails:
    status = STATUSES.get(code, _BY_KIND[kind])
    return ProblemDetails(
        f"urn:scribengin:problem:{code}",
        code.replace("-", " "),
        status,
        detail,
        code,
        kind,
        int(exit),
        **more,  # type: ignore[arg-type]
    )


def _kind_of(error: ScribenginError) -> Kind:
    if isinstance(error, Conflict):
        return "conflict"
    return next(kind for kind, branch in _KINDS.items() if isinstance(error, branch))


def _fault_of(problem: Problem) -> Fault:
    place = problem.place
    return Fault(problem.code, problem.message, problem.remedy, problem.severity, "", place.file, place.line, place.column)


def _problem_of(fault: Fault) -> Problem:
    place = Place(fault.file or fault.pointer, fault.line, fault.column)
    return Problem(fault.code, place, fault.detail, fault.remedy, "warning" if fault.severity == "warning" else "error")
