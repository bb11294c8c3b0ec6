"""`/v1/tokens`: tokens of the API. For admins."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.client.models import MadeToken, NewToken, TokenRow, Written
from scribengin.registry.contract import Registry


def token_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/tokens", tags=["tokens"])

    @routes.get("", response_model=list[TokenRow])
    def list_tokens(asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """The tokens and their rights."""
        asked.check_all()
        return asked.answer(asked.plane.tokens.rows())

    @routes.post("", response_model=MadeToken)
    def make_token(wanted: NewToken, asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """Make a token: it is shown in this answer only. If the request is repeated, the name is taken."""

        def act(_registry: Registry) -> MadeToken:
            asked.check_all()
            made = asked.plane.tokens.add(wanted.name, wanted.role, wanted.labels, until=wanted.until, by=asked.who.name)
            return MadeToken(wanted.name, made)

        return asked.write("make token", wanted.name[:200], act, secret=True)

    @routes.delete("/{name}", response_model=Written)
    def remove_token(name: str, asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """Revoke a token at every master."""

        def act(_registry: Registry) -> Written:
            asked.check_all()
            asked.plane.tokens.remove(name)
            return Written(asked.plane.revision())

        return asked.write("remove token", name[:200], act)

    return routes
