"""A schema registry for tests: a real HTTP server of the three calls that we use, for there is none to install from a package index.

Paths, answers and codes are those of Confluent's registry (its API reference): a schema by id, a version of a subject, a new schema.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOGIN = "reader:secret"


@dataclass
class RegistryServer:
    """Serves from `with` to its end. What it knows may be changed at any time."""

    subjects: dict[str, list[int]] = field(default_factory=dict)
    """subject → the ids of its versions, the first one's number is 1"""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    """id → what the registry tells of it"""
    asked: list[str] = field(default_factory=list)
    broken: int = 0
    """the status of every answer while it is not 0"""
    login: bool = False
    """True: only LOGIN is let in"""

    def add(self, subject: str, text: str, **more: Any) -> int:
        """The id of a schema, which a subject gets as its next version."""
        id_ = 1 + max(self.schemas, default=0)
        self.schemas[id_] = {"schema": text, **more}
        self.subjects.setdefault(subject, []).append(id_)
        return id_

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RegistryServer:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """From now on nobody answers there."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(registry: RegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            path = self.path.partition("?")[0]
            if self._refused():
                return
            if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
                self._schema(int(found[1]))
            elif found := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|\d+)", path):
                ids = registry.subjects.get(found[1], [])
                version = len(ids) if found[2] == "latest" else int(found[2])
                if not 1 <= version <= len(ids):
                    self._answer(404, {"error_code": 40401, "message": f"Subject '{found[1]}' not found."})
                else:
                    id_ = ids[version - 1]
                    self._answer(200, {"subject": found[1], "version": version, "id": id_, **registry.schemas[id_]})
            else:
                self._answer(404, {"error_code": 404, "message": "HTTP 404 Not Found"})

        def do_POST(self) -> None:
            registry.asked.append(self.path)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = re.fullmatch(r"/subjects/([^/]+)/versions", self.path.partition("?")[0])
            if self._refused():
                return
            assert found is not None
            known = [id_ for id_ in registry.subjects.get(found[1], []) if registry.schemas[id_]["schema"] == body["schema"]]
            self._answer(200, {"id": known[0] if known else registry.add(found[1], body["schema"])})

        def _schema(self, id_: int) -> None:
            if id_ in registry.schemas:
                self._answer(200, registry.schemas[id_])
            else:
                self._answer(404, {"error_code": 40403, "message": f"Schema {id_} not found"})

        def _refused(self) -> bool:
            if registry.broken:
                self._answer(registry.broken, {"error_code": 50001, "message": "Error in the backend data store"})
                return True
            if registry.login and self.headers.get("Authorization") != "Basic " + base64.b64encode(LOGIN.encode()).decode():
                self._answer(401, {"error_code": 401, "message": "Unauthorized"})
                return True
            return False

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
