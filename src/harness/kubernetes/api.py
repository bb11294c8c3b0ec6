"""A small client of the Kubernetes API: objects are the JSON that the API server sends, as dicts."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]
_TIMEOUT_S = 30.0
_STRATEGIC_MERGE = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The API server refused a request, or did not answer it; `status` is the HTTP status, or 0."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class ApiClient:
    """Requests of one user to an API server. Threads may share it."""

    def __init__(self, server: str, ca: Path, *, certificate: tuple[Path, Path] | None = None, token: str = "") -> None:
        """Prepare it.

        Args:
            server: the URL of the API server.
            ca: the file of the certificate authority.
            certificate: the files of the user's certificate and key.
            token: the user's token, if there is no certificate.
        """
        context = ssl.create_default_context(cafile=str(ca))
        if certificate is not None:
            context.load_cert_chain(*certificate)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = httpx2.Client(base_url=server, verify=context, headers=headers, timeout=_TIMEOUT_S, trust_env=False, limits=limits)

    def close(self) -> None:
        """Close all connections; a watch that is open ends with an ApiError."""
        self._http.close()

    def get(self, path: str, **query: str) -> Json:
        """An object or a list by its path, such as `/api/v1/namespaces/default/pods/one`. Raises ApiError."""
        return self._request("GET", path, query=query)

    def find(self, path: str) -> Json | None:
        """An object by its path; None if it does not exist. Raises ApiError."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == httpx2.codes.NOT_FOUND:
                return None
            raise

    def text(self, path: str, **query: str) -> str:
        """What the API server answers as plain text, such as the log of a pod. Raises ApiError."""
        return self._send("GET", path, query=query).text

    def create(self, path: str, content: Json) -> Json:
        """Create an object in the collection of that path. Raises ApiError: status 409 if it exists."""
        return self._request("POST", path, content=content)

    def patch(self, path: str, content: Json) -> Json:
        """Change an object by a strategic merge patch. Raises ApiError."""
        return self._request("PATCH", path, content=content, kind=_STRATEGIC_MERGE)

    def delete(self, path: str, content: Json | None = None) -> Json:
        """Delete an object. Raises ApiError.

        Args:
            path: its path.
            content: DeleteOptions, such as `{"gracePeriodSeconds": 0}`.
        """
        return self._request("DELETE", path, content=content or {})

    def watch(self, path: str, version: str, **query: str) -> Iterator[tuple[str, Json]]:
        """The changes of a collection, as (type, object), until the API server ends the request, which it does after some minutes.

        Args:
            path: the path of the collection.
            version: the resource version that the changes follow.
            query: such as `fieldSelector`.

        Raises:
            ApiError: the request failed; status 410 if the version is too old.
        """
        asked = {**query, "watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        timeout = httpx2.Timeout(_TIMEOUT_S, read=None)
        try:
            with self._http.stream("GET", path, params=asked, timeout=timeout) as answer:
                if answer.status_code >= httpx2.codes.BAD_REQUEST:
                    raise ApiError(answer.status_code, answer.read().decode(errors="replace"))
                for line in answer.iter_lines():
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        raise ApiError(event["object"].get("code", 0), event["object"].get("message", ""))
                    yield event["type"], event["object"]
        except (httpx2.HTTPError, RuntimeError) as error:
            raise ApiError(0, str(error)) from error

    def _request(self, method: str, path: str, *, query: dict[str, str] | None = None, content: Json | None = None, kind: str = "") -> Json:
        answer: Json = msgspec.json.decode(self._send(method, path, query=query, content=content, kind=kind).content)
        return answer

    def _send(
        self, method: str, path: str, *, query: dict[str, str] | None = None, content: Json | None = None, kind: str = ""
    ) -> httpx2.Response:
        headers = {"Content-Type": kind or "application/json"}
        body = None if content is None else msgspec.json.encode(content)
        try:
            answer = self._http.request(method, path, params=query, content=body, headers=headers)
        except (httpx2.HTTPError, RuntimeError) as error:  # RuntimeError: the client was closed
            raise ApiError(0, str(error)) from error
        if answer.status_code >= httpx2.codes.BAD_REQUEST:
            raise ApiError(answer.status_code, _message(answer))
        return answer


def _message(answer: httpx2.Response) -> str:
    try:
        return str(msgspec.json.decode(answer.content)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return answer.text[:1000]
