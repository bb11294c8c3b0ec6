"""`/v1/packages`: packages by their SHA-256, uploaded and downloaded."""

import tempfile
from collections.abc import Callable, Iterator
from typing import IO, Annotated, Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.client.models import PACKAGE_ID, PackageRow
from scribengin.client.problems import Fault, PointedError
from scribengin.core.errors import Refused, ScribenginError

_MEMORY_BYTES = 2**20
_PIECE_BYTES = 2**20


def package_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/packages", tags=["packages"])

    @routes.get("", response_model=list[PackageRow])
    def list_packages(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The packages that this master has."""
        asked.check_all()
        return asked.answer([PackageRow(each.id, each.size) for each in asked.plane.packages.packages()])

    @routes.put("/{id}", response_model=PackageRow, openapi_extra=_BYTES)
    async def bring_package(id: str, request: Request, asked: Annotated[ApiRequest, may(Role.EDITOR)]) -> Response:
        """Store a package; the body is its file. If the body does not match its hash, it is refused and nothing is kept."""
        check_id(id)
        with tempfile.SpooledTemporaryFile(_MEMORY_BYTES) as file:
            async for piece in request.stream():
                await run_in_threadpool(file.write, piece)
            file.seek(0)
            return await run_in_threadpool(_keep, asked, id, file)

    @routes.head("/{id}", response_class=Response)
    def has_package(id: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """Whether this master has a package."""
        return _file(asked, id)

    @routes.get("/{id}", response_class=FileResponse, responses={200: _FILE})
    def fetch_package(id: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """A package's file. The client checks its hash."""
        asked.check_all()
        return _file(asked, id)

    return routes


_FILE: dict[str, Any] = {"description": "The file", "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}
_BYTES = {"requestBody": {"required": True, "content": _FILE["content"]}}


def _file(asked: ApiRequest, id: str) -> Response:
    check_id(id)
    path = asked.plane.packages.file(id)
    if not path.is_file():
        raise Refused(f"this master has no package {id}", remedy=f"upload it: PUT /v1/packages/{id}", code="package-missing")
    return FileResponse(path, media_type="application/zip", headers={"ETag": f'"{id}"'})


def check_id(id: str) -> None:
    """Raise InputError if the text is not a package's id."""
    if not PACKAGE_ID.fullmatch(id):
        raise PointedError(
            (Fault("package-name", f'"{id}" is not a SHA-256', "write 64 hexadecimal digits, as `scribengin package create` shows them"),)
        )


def _keep(asked: ApiRequest, id: str, file: IO[bytes]) -> Response:
    try:
        package = asked.plane.packages.put(_pieces(file), id)
    except ScribenginError as error:
        asked.note("bring package", id, error.code)
        raise
    asked.note("bring package", id, "done")
    return asked.answer(PackageRow(package.id, len(package.data)))


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece
