"""A worker's page: what it shows, to whom, and that names in it are only names."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

from scribengin.control.html_page import page
from scribengin.control.world import RunId
from scribengin.registry.lease import Election, RegistryLease
from scribengin.registry.memory import MemoryStore
from scribengin.registry.tree import LEASE
from scribengin.worker.status_page import Glance, serve_page


def asks(url: str, path: str, host: str | None = None) -> tuple[int, bytes]:
    """A request: (status, body)."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        connection.request("GET", path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_it_serves_what_is_so_at_the_moment_to_this_host_alone_and_nothing_else() -> None:
    state = {"worker": "tweets.core-1", "rows": 1}
    with serve_page(lambda: state) as url:
        assert asks(url, "/json") == (200, json.dumps(state).encode())
        state["rows"] = 2
        assert json.loads(asks(url, "/json")[1])["rows"] == 2
        status, shown = asks(url, "/")
        assert status == 200
        assert b"tweets.core-1" in shown
        assert asks(url, "/etc/passwd")[0] == 404
        assert asks(url, "/json", host="evil.example:80")[0] == 421


def test_what_stands_in_a_flow_is_text_on_the_page() -> None:
    shown = page({"worker": "a<b", "nodes": [{"node": "<script>alert(1)</script>"}], "none": None})
    assert "<script" not in shown
    assert "a&lt;b" in shown
    assert "&lt;script&gt;" in shown


def test_a_glance_says_who_leads_and_whether_the_lease_is_held() -> None:
    store = MemoryStore()
    registry, other = store.client(), store.client()
    id_ = RunId("tweets", "core", 3)
    with RegistryLease(registry, LEASE("tweets", "core").path, {"run": 3}) as lease:
        glance = Glance(registry, id_, lease, 7)
        before = glance.as_json()
        assert (before["worker"], before["version"], before["lease"], before["master"]) == (
            "tweets.core-3",
            7,
            {"held": False, "term": None},
            None,
        )
        with Election(other, {"id": "m1", "host": "h", "http": "http://127.0.0.1:1"}) as election:
            assert election.acquire()
            assert lease.acquire()
            now = glance.as_json()
    assert now["lease"] == {"held": True, "term": lease.term.number}
    assert now["master"] == {"id": "m1", "host": "h", "http": "http://127.0.0.1:1"}
    json.dumps(now)
