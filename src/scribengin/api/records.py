"""`/v1/registry`: browse the registry; write the records that operators may write (see docs/registry.md)."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.api.tokens import shown_record
from scribengin.client.models import RecordView, RecordWrite, Written
from scribengin.client.problems import Fault, PointedError
from scribengin.core.errors import Refused
from scribengin.registry.contract import Create, Damaged, Delete, Registry, Replace, check_path
from scribengin.registry.tree import DESIRED, OPERATION, TOKEN, Branch, Writer, branch_of

_LONGEST_PATH = 1_000
_MOST_NAMES = 10_000


def record_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/registry", tags=["registry"])

    @routes.get("/", response_model=RecordView)
    @routes.get("", response_model=RecordView, include_in_schema=False)
    def show_root(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The value at the registry's root."""
        asked.check_all()
        return asked.answer(_view(asked.registry, ""))

    @routes.get("/{path:path}", response_model=RecordView)
    def show_record(path: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The value at a path, and the names below it. `ETag` is the record's version."""
        asked.check_all()
        view = _view(asked.registry, _checked(path))
        if view.version < 0:
            raise Refused(
                f"the registry has nothing at {path}", remedy="GET /v1/registry/ shows the names below a path", code="record-missing"
            )
        return asked.answer(view, headers={"ETag": f'"{view.version}"'})

    @routes.put("/{path:path}", response_model=Written)
    def write_record(path: str, record: RecordWrite, asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """Replace a record that people may write, if it still has the version that was read. The value is checked first."""

        def act(registry: Registry) -> Written:
            asked.check_all()
            branch = _by_hand(_checked(path))
            value = _fitting(branch, record.value)
            there = registry.read(path)
            if there is None:
                if record.version is not None:
                    raise _stale(path, "is not there")
                return Written(registry.commit(Create(path, value)).revision)
            if there.version != record.version:
                raise _stale(path, f"has version {there.version}")
            return Written(registry.commit(Replace(there, value)).revision)

        return asked.write("write record", path, act, record)

    @routes.delete("/{path:path}", response_model=Written)
    def delete_record(path: str, version: Annotated[int, Query(ge=0, lt=2**31)], asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """Delete a record that people may write, if it has the version that was read."""

        def act(registry: Registry) -> Written:
            asked.check_all()
            branch = _by_hand(_checked(path))
            if branch in (DESIRED, OPERATION):
                raise Refused("this is removed with its flow", remedy="DELETE /v1/flows/{flow}", code="registry-kept")
            there = registry.read(path)
            if there is None or there.version != version:
                raise _stale(path, "is not there" if there is None else f"has version {there.version}")
            return Written(registry.commit(Delete(path, version)).revision)

        return asked.write("delete record", path, act)

    return routes


def _view(registry: Registry, path: str) -> RecordView:
    """The record at a path, and the names below it. `version` is -1 if it does not exist."""
    found = registry.read(path)
    children = registry.children(path)[:_MOST_NAMES]
    branch = branch_of(path)
    writable = branch is not None and Writer.PERSON in branch.writers
    if found is None:
        return RecordView(path, None, -1, 0, children, writable)
    if isinstance(found, Damaged):
        return RecordView(path, None, found.version, found.changed, children, writable, found.why)
    value = shown_record(found.value) if branch is TOKEN else found.value
    return RecordView(path, value or None, found.version, found.changed, children, writable)


def _checked(path: str) -> str:
    try:
        if len(path) > _LONGEST_PATH:
            raise ValueError("it is too long")
        check_path(path)
    except ValueError as error:
        raise PointedError(
            (Fault("registry-path", f"not a valid path of the registry: {error}", "write names with one / between two of them"),)
        ) from None
    return path


def _by_hand(path: str) -> Branch[Any]:
    branch = branch_of(path)
    if branch is None:
        raise Refused(f"the registry has no place {path}", remedy="docs/registry.md lists all paths", code="registry-kept")
    if Writer.PERSON not in branch.writers:
        writers = " and ".join(writer.name.lower() for writer in branch.writers)
        raise Refused(
            f"{branch.path} can be written by {writers} only",
            remedy="docs/registry.md shows who may write which record",
            code="registry-kept",
        )
    return branch


def _fitting(branch: Branch[Any], value: dict[str, Any]) -> dict[str, Any]:
    """The value with its format. Raises InputError if it is not a valid record of this kind."""
    number = value.get("format", branch.kind.FORMAT)
    if type(number) is not int or not 1 <= number <= branch.kind.FORMAT:
        fault = Fault(
            "body", f"format must be a number from 1 to {branch.kind.FORMAT}, found {number!r}", "omit it", pointer="/value/format"
        )
        raise PointedError((fault,))
    try:
        branch.kind.parse(value)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at ")
        pointer = place.strip("`").removeprefix("$").replace("[...]", "").replace(".", "/").replace("[", "/").replace("]", "")
        raise PointedError((Fault("body", said, f"docs/registry.md has the keys of {branch.path}", pointer=f"/value{pointer}"),)) from None
    return {"format": branch.kind.FORMAT, **value}


def _stale(path: str, now: str) -> Refused:
    return Refused(
        f"{path} {now}: nothing was written", remedy="read it again and repeat the change on its present version", code="revision-stale"
    )
