"""`/v1/tokens`: who may use the API. For admins."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api.access import Role
from scribengin.api.plane import ApiRequest
from scribengin.client.host_models import MadeToken, NewToken, TokenRow
from scribengin.client.models import Written
from scribengin.registry.contract import Registry


def token_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` lets in who has a role."""
    routes = APIRouter(prefix="/v1/tokens", tags=["tokens"])

    @routes.get("", response_model=list[TokenRow])
    def list_tokens(asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """Whose tokens there are, and what each may do."""
        asked.check_all()
        return asked.answer(asked.plane.tokens.rows())

    @routes.post("", response_model=MadeToken)
    def make_token(wanted: NewToken, asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """Make a token: it is shown in this answer, and nowhere else. Asked again, the name is taken."""

        def act(_registry: Registry) -> MadeToken:
            asked.check_all()
            made = asked.plane.tokens.add(wanted.name, wanted.role, wanted.labels, until=wanted.until, by=asked.who.name)
            return MadeToken(wanted.name, made)

        return asked.write("make token", wanted.name[:200], act, secret=True)

    @routes.delete("/{name}", response_model=Written)
    def remove_token(name: str, asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """From now on it opens nothing, at any master."""

        def act(_registry: Registry) -> Written:
            asked.check_all()
            asked.plane.tokens.remove(name)
            return Written(asked.plane.revision())

        return asked.write("remove token", name[:200], act)

    return routes
