"""Sessions of browsers: what a cookie gives, from which pages, and until when."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import httpx2
import pytest

from scribengin.api.console_files import console_files
from scribengin.api.serving import Listen
from scribengin.registry.record_io import Stored, names, read_record
from scribengin.registry.tree import SESSION

if TYPE_CHECKING:
    from conftest import Bench, Served

JSON = {"Content-Type": "application/json"}


def signed_in(bench: Bench, role: str = "operator", **labels: str) -> tuple[Served, httpx2.Client]:
    """A master that requires tokens, and a browser with a session at it."""
    token = bench.tokens.add("ann", role, labels)  # type: ignore[arg-type]
    master = bench.master(listen=Listen(asks=True))
    browser = bench.stack.enter_context(httpx2.Client(base_url=master.url, headers={"Origin": master.url}))
    answer = browser.post("/v1/session", json={"token": token})
    assert answer.status_code == 200, answer.text
    assert answer.json() | {"until": ""} == {"name": "ann", "role": role, "labels": labels, "signed_in": True, "until": ""}
    return master, browser


def test_a_session_has_the_rights_of_its_token_and_scripts_cannot_read_it(bench: Bench) -> None:
    master, browser = signed_in(bench, "viewer")
    cookie = browser.post("/v1/session", json={"token": bench.tokens.add("bob", "viewer", {})}).headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/" in cookie
    assert browser.get("/v1/session").json()["name"] == "bob"
    assert browser.get("/v1/flows").status_code == 200
    refused = browser.put("/v1/flows/numbers/wanted", json={"state": "paused"})
    assert (refused.status_code, refused.json()["code"]) == (403, "role-lacking")
    lines = [json.loads(line) for line in bench.audit.read_text().splitlines()]
    assert [(line["who"], line["what"], line["outcome"]) for line in lines if line["what"] == "open session"] == [
        ("ann", "open session", "done"),
        ("bob", "open session", "done"),
    ]
    assert httpx2.get(f"{master.url}/v1/flows").status_code == 401


def test_the_secret_of_a_session_is_not_in_the_registry(bench: Bench) -> None:
    _, browser = signed_in(bench)
    [cookie] = browser.cookies.jar
    [name] = names(bench.person, "sessions")
    there = read_record(bench.person, SESSION(name))
    assert isinstance(there, Stored)
    assert str(cookie.value) not in name + json.dumps(there.record.dump())


def test_a_session_is_over_at_every_master_when_its_user_leaves_or_its_token_is_revoked(bench: Bench) -> None:
    master, browser = signed_in(bench)
    kept = dict(browser.cookies)
    assert browser.delete("/v1/session").status_code == 204
    assert browser.get("/v1/session").json()["code"] == "token-missing", "the browser has forgotten the cookie"
    with httpx2.Client(base_url=master.url, cookies=kept) as thief:
        assert thief.get("/v1/session").json()["code"] == "session-over"
    assert browser.post("/v1/session", json={"token": bench.tokens.add("bob", "viewer", {})}).status_code == 200
    bench.tokens.remove("bob")
    over = browser.get("/v1/flows")
    assert (over.status_code, over.json()["code"]) == (401, "session-over")


def test_a_session_that_has_expired_is_over_and_is_deleted_with_the_next_one(bench: Bench) -> None:
    _, browser = signed_in(bench)
    [name] = names(bench.person, "sessions")
    there = read_record(bench.person, SESSION(name))
    assert isinstance(there, Stored)
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    bench.person.commit(there.replace(type(there.record)(token=there.record.token, until=past)))
    assert browser.get("/v1/flows").json()["code"] == "session-over"
    browser.post("/v1/session", json={"token": bench.tokens.add("bob", "viewer", {})})
    assert name not in names(bench.person, "sessions")
    assert len(names(bench.person, "sessions")) == 1


def test_a_token_that_is_not_valid_or_is_for_agents_opens_no_session(bench: Bench) -> None:
    agent = bench.tokens.add("web1", "agent", {})
    master = bench.master(listen=Listen(asks=True))
    origin = {"Origin": master.url}
    for token, code in (("sgt_000000000000_" + "x" * 43, "token-unknown"), ("", "token-unknown"), (agent, "role-lacking")):
        answer = httpx2.post(f"{master.url}/v1/session", json={"token": token}, headers=origin)
        assert answer.json()["code"] == code
        assert "Set-Cookie" not in answer.headers
    assert names(bench.person, "sessions") == ()


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("PUT", {"Origin": "http://127.0.0.1:1"}),
        ("PUT", {"Origin": "null"}),
        ("PUT", {}),
        ("PUT", {"Sec-Fetch-Site": "same-site"}),
        ("GET", {"Sec-Fetch-Site": "same-site"}),
        ("GET", {"Origin": "http://evil.example"}),
        ("DELETE", {"Sec-Fetch-Site": "cross-site"}),
    ],
)
def test_another_page_cannot_use_a_session(bench: Bench, method: str, headers: dict[str, str]) -> None:
    master, browser = signed_in(bench, "admin")
    path = "/v1/session" if method == "DELETE" else "/v1/flows/numbers/wanted" if method == "PUT" else "/v1/flows"
    with httpx2.Client(base_url=master.url, cookies=dict(browser.cookies)) as other:
        answer = other.request(method, path, content=b'{"state": "paused"}' if method == "PUT" else b"", headers={**JSON, **headers})
    assert (answer.status_code, answer.json()["code"]) == (403, "origin-foreign")
    assert browser.get("/v1/session").status_code == 200


def test_a_cookie_of_before_does_no_harm_where_no_token_is_needed(bench: Bench) -> None:
    master = bench.master()
    port = master.url.rpartition(":")[2]
    with httpx2.Client(base_url=master.url, cookies={f"scribengin_session_{port}": "old"}) as browser:
        answer = browser.get("/v1/session")
    assert (answer.status_code, answer.json()["role"]) == (200, "admin")


@pytest.mark.parametrize("host", ["127.0.0.1:port", "127.0.0.1:99999999", "[::1]", "a b", "127.0.0.1"])
def test_any_host_in_a_request_is_answered(bench: Bench, host: str) -> None:
    master = bench.master()
    answer = httpx2.get(f"{master.url}/v1/session", headers={"Host": host})
    assert answer.status_code in (200, 400, 403), answer.text


def test_the_files_of_the_console_need_no_token_and_run_nothing_from_elsewhere(bench: Bench) -> None:
    bench.tokens.add("ann", "viewer", {})
    master = bench.master(listen=Listen(asks=True))
    for name in ["", *(f"console/{name}" for name in console_files())]:
        answer = httpx2.get(f"{master.url}/{name}")
        assert answer.status_code == 200, name
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["Content-Encoding"] == "gzip"
        again = httpx2.get(f"{master.url}/{name}", headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
    plain = httpx2.get(f"{master.url}/console/main.js", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    for name in ("../app.py", "..%2Fapp.py", "%2e%2e/app.py", "nope.js", ""):
        assert httpx2.get(f"{master.url}/console/{name}").status_code == 404


def test_a_page_is_small() -> None:
    files = console_files()
    shipped = {name: file for name, file in files.items() if name.endswith((".js", ".css", ".html", ".svg"))}
    pages = [name for name in shipped if name.startswith("pages/")]
    common = [file for name, file in shipped.items() if name not in pages]
    assert len(pages) >= 2
    for name in pages:
        loaded = [*common, shipped[name]]
        assert sum(len(file.plain) for file in loaded) <= 500_000, name
        assert sum(len(file.packed) for file in loaded) <= 180_000, name


@pytest.fixture
def standby(bench: Bench) -> tuple[Served, httpx2.Client]:
    """A master that does not lead, beside one that does, and a browser with a session at the standby."""
    token = bench.tokens.add("ann", "operator", {})
    leader, standby = bench.master(listen=Listen(asks=True)), bench.master(listen=Listen(asks=True))
    assert standby.plane.watch is not None
    standby.plane.watch.leads = lambda: False
    standby.plane.watch.leader = lambda: leader.url
    fetches = {"Origin": standby.url, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
    browser = bench.stack.enter_context(httpx2.Client(base_url=standby.url, headers=fetches))
    assert browser.post("/v1/session", json={"token": token}).status_code == 200
    return leader, browser


def test_a_browser_gets_the_answer_of_the_leader_from_a_standby(standby: tuple[Served, httpx2.Client]) -> None:
    leader, browser = standby
    answer = browser.get("/v1/metrics")
    assert (answer.status_code, answer.json(), answer.headers["Content-Type"]) == (200, [], "application/json")
    missing = browser.get("/v1/flows/nope/metrics")
    assert (missing.status_code, missing.json()["code"]) == (404, "flow-unknown")
    assert browser.post("/v1/flows/nope/alerts/test", content=b"").json()["code"] == "flow-unknown"
    redirected = httpx2.get(f"{browser.base_url}/v1/metrics", headers={"Authorization": "Bearer x"})
    assert redirected.status_code == 401
    assert str(browser.base_url).rstrip("/") != leader.url


def test_two_standbys_that_take_each_other_for_the_leader_say_so(standby: tuple[Served, httpx2.Client]) -> None:
    leader, browser = standby
    assert leader.plane.watch is not None
    leader.plane.watch.leads = lambda: False
    leader.plane.watch.leader = lambda: str(browser.base_url)
    answer = browser.get("/v1/metrics")
    assert (answer.status_code, answer.json()["code"]) == (503, "leader-missing")


def test_the_page_loads_at_once_what_its_first_view_needs() -> None:
    files = console_files()

    def below(name: str) -> set[str]:
        folder = PurePosixPath(name).parent
        found = set()
        for import_ in re.findall(rb'from\s*"([^"]+)"', files[name].plain):
            there = os.path.normpath(folder / import_.decode())
            found |= {there} | below(there)
        return found

    needed = {"main.js", "pages/fleet.js"} | below("main.js") | below("pages/fleet.js")
    loaded = set(re.findall(r'(?:rel="modulepreload" href|module" src)="console/([^"]+)"', files["index.html"].plain.decode()))
    assert loaded == needed


def test_what_a_module_imports_is_there() -> None:
    files = {name: file.plain.decode() for name, file in console_files().items() if name.endswith(".js") and not name.startswith("vendor/")}
    missing = []
    for name, text in files.items():
        for imported, from_ in re.findall(r'import \{([^}]*)\} from "([^"]+)"', text):
            there = os.path.normpath(PurePosixPath(name).parent / from_)
            if there.startswith("vendor/"):
                assert there in console_files(), (name, there)
                continue
            exported = set(re.findall(r"export (?:default )?(?:async )?(?:const|function|class) (\w+)", files[there]))
            exported |= {each.strip() for found in re.findall(r"export \{([^}]*)\}", files[there]) for each in found.split(",")}
            missing += [f"{name}: {each} of {there}" for each in (one.split()[0] for one in imported.split(",")) if each not in exported]
    assert missing == []
