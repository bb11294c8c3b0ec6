"""What is refused is told the same by a command, by the client and over HTTP; and nothing is half done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.api.serving import Listen
from scribengin.control import flow_requests
from scribengin.core.errors import ScribenginError
from scribengin.registry.records import TierSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import httpx2
    from conftest import Bench

    from scribengin.client.client import Client

Said = tuple[str, str, str]
"""code, message, remedy"""


def submitted(bench: Bench) -> None:
    submission = flow_requests.Submission("numbers", "0" * 64, "flow.yaml", "/base", {"main": TierSpec()})
    flow_requests.apply(bench.person, submission, state=lambda _: "/state", by="bob")


@pytest.fixture
def typed(says: Callable[..., dict[str, Any]]) -> Callable[..., list[Said]]:
    """A command's problems, beside the master of the bench."""
    return lambda *words: [(each["code"], each["message"], each["remedy"]) for each in says(*words)["problems"]]


def client_says(act: Callable[[], Any]) -> Said:
    with pytest.raises(ScribenginError) as told:
        act()
    return told.value.code, told.value.message, told.value.remedy


def http_says(answer: httpx2.Response) -> Said:
    said = answer.json()
    return said["code"], said["detail"], said["remedy"]


@pytest.mark.parametrize(
    ("words", "act", "method", "path", "body", "code"),
    [
        (
            ["pause", "nope"],
            lambda client: client.want("nope", "paused"),
            "PUT",
            "/v1/flows/nope/wanted",
            {"state": "paused"},
            "flow-unknown",
        ),
        (["status", "number"], lambda client: client.flow("number"), "GET", "/v1/flows/number", None, "flow-unknown"),
        (["delete", "numbers"], lambda client: client.delete("numbers"), "DELETE", "/v1/flows/numbers", None, "flow-not-stopped"),
        (
            ["rollback", "numbers", "7"],
            lambda client: client.rollback("numbers", 7),
            "POST",
            "/v1/flows/numbers/rollback",
            {"version": 7},
            "version-unknown",
        ),
        (
            ["rollback", "numbers", "1"],
            lambda client: client.rollback("numbers", 1),
            "POST",
            "/v1/flows/numbers/rollback",
            {"version": 1},
            "version-same",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_does_not_fit_the_state(
    bench: Bench,
    typed: Callable[..., list[Said]],
    words: list[str],
    act: Callable[[Client], Any],
    method: str,
    path: str,
    body: Any,
    code: str,
) -> None:
    master = bench.master()
    submitted(bench)
    before = bench.store.nodes["flows/numbers/desired"]
    told = http_says(master.ask(method, path, json=body))
    assert told[0] == code
    assert typed(*words) == [told]
    assert client_says(lambda: act(bench.client())) == told
    assert bench.store.nodes["flows/numbers/desired"] == before, "nothing was done"


def test_a_wrong_token(bench: Bench, typed: Callable[..., list[Said]], monkeypatch: pytest.MonkeyPatch) -> None:
    bench.tokens.add("ann", "admin", {})
    master = bench.master(listen=Listen(asks=True))
    told = http_says(master.ask("GET", "/v1/flows", headers={"Authorization": "Bearer wrong"}))
    monkeypatch.setenv("SCRIBENGIN_TOKEN", "wrong")
    assert told[0] == "token-unknown"
    assert typed("list") == [told]
    assert client_says(bench.client(token="wrong").flows) == told


def test_a_registry_that_is_away(bench: Bench, typed: Callable[..., list[Said]]) -> None:
    master = bench.master()
    submitted(bench)
    master.registry.cut()
    told = http_says(master.ask("PUT", "/v1/flows/numbers/wanted", json={"state": "paused"}))
    assert told[0] == "unreachable"
    assert typed("pause", "numbers") == [told]
    assert client_says(lambda: bench.client().want("numbers", "paused")) == told


def test_a_flow_with_mistakes(bench: Bench, typed: Callable[..., list[Said]], tmp_path: Path) -> None:
    """A command finds them before it asks a master, and says the same of each, with the place in the file that was named."""
    from scribengin.client.models import Submit
    from scribengin.packages.package import PackedFlow, build_package

    master = bench.master()
    text = bench.flow.replace("from: odd", "from: even")
    (tmp_path / "flow.yaml").write_text(text)
    package = build_package("numbers", "0", [PackedFlow("numbers", "flow.yaml")], [], {"flow.yaml": text.encode()})
    bench.client().upload(package.id, package.data)
    body = Submit(package.id, "flow.yaml", "/base")
    answer = master.ask("PUT", "/v1/flows/numbers", json={"package": body.package, "path": body.path, "base": body.base}).json()
    told = [(each["code"], each["detail"], each["remedy"]) for each in answer["problems"]]
    assert typed("apply", str(tmp_path / "flow.yaml")) == told
    assert bench.person.children("flows") == ()


def test_a_package_that_is_too_large_or_not_what_its_hash_says(bench: Bench) -> None:
    master = bench.master()
    package = bench.package()
    told = http_says(master.ask("PUT", f"/v1/packages/{'1' * 64}", content=package.data))
    assert told[0] == "package-hash"
    assert client_says(lambda: bench.client().upload("1" * 64, package.data)) == told
    assert list(master.packages.folder.iterdir()) == []


def test_no_master_answers(typed: Callable[..., list[Said]], bench: Bench) -> None:
    bench.master()
    bench.masters[0].url = "http://127.0.0.1:1"
    ((code, message, remedy),) = typed("pause", "numbers")
    assert code == "master-unreachable"
    assert "http://127.0.0.1:1" in message
    assert remedy
