"""Texts of flow files: of a version, and one that is checked, planned and applied from a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from scribengin.api.serving import Listen
from scribengin.client.models import Submit
from tests.api.flow_texts import FLOW, GUARDED

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Bench, Served


def text_of(tmp_path: Path) -> str:
    return FLOW.replace("FOLDER", str(tmp_path))


def asks(master: Served, method: str, path: str, body: Any = None) -> httpx2.Response:
    return httpx2.request(method, f"{master.url}/v1/{path}", json=body, timeout=120)


def test_a_text_is_checked_planned_and_applied(bench: Bench, tmp_path: Path) -> None:
    master, text = bench.master(), text_of(tmp_path)
    checked = asks(master, "POST", "flow-files/check", {"text": text}).json()
    assert (checked["flow"], checked["problems"]) == ("numbers", [])
    assert [node["node"] for node in checked["graph"]["nodes"]] == ["numbers", "odd", "kept"]
    assert bench.client().flows() == [], "nothing is stored"

    planned = asks(master, "POST", "flow-files/plan", {"flow": "numbers", "text": text}).json()
    assert [each["flow"] for each in planned["plan"]["flows"]] == ["numbers"]
    assert bench.client().flows() == []
    applied = asks(master, "PUT", "flows/numbers", {**planned["submit"], "plan": planned["plan"]["hash"]}).json()
    assert applied == {"flow": "numbers", "version": 1, "changed": True}
    shown = asks(master, "GET", "flows/numbers/versions/1/text").json()
    assert (shown["text"], shown["lines"]) == (text, {"numbers": 4, "odd": 6, "kept": 8})
    assert asks(master, "GET", "flows/numbers/versions/2/text").json()["code"] == "version-unknown"


def test_the_problems_of_a_text_have_the_lines_and_words_of_validate(bench: Bench, tmp_path: Path) -> None:
    from scribengin.plan.validate import validate_file

    text = text_of(tmp_path).replace("from: odd", "from: even").replace("id % 2", "ix % 2")
    file = tmp_path / "flow.yaml"
    file.write_text(text)
    checked = asks(bench.master(), "POST", "flow-files/check", {"text": text}).json()
    expected = [(each.place.line, each.place.column, each.severity, each.code, each.message) for each in validate_file(file, {})[1]]
    assert [(each["line"], each["column"], each["severity"], each["code"], each["message"]) for each in checked["problems"]] == expected
    assert len(expected) >= 2
    assert checked["graph"] is None


@pytest.mark.parametrize("text", ["", "[", "\0", "version: 1", "x" * 1000, "a: &a [*a]", "name: é"])
def test_any_text_is_checked(bench: Bench, text: str) -> None:
    checked = asks(bench.master(), "POST", "flow-files/check", {"text": text}).json()
    assert checked["graph"] is None
    assert checked["problems"]
    assert all(each["line"] >= 1 and each["column"] >= 1 and each["message"] for each in checked["problems"])


def test_a_text_is_neither_checked_nor_planned_for_an_operator(bench: Bench, tmp_path: Path) -> None:
    token = bench.tokens.add("olga", "operator", {})
    master = bench.master(listen=Listen(asks=True))
    for path, body in (("check", {"text": "a"}), ("plan", {"flow": "numbers", "text": text_of(tmp_path)})):
        answer = httpx2.post(f"{master.url}/v1/flow-files/{path}", json=body, headers={"Authorization": f"Bearer {token}"})
        assert answer.json()["code"] == "role-lacking"


def test_the_text_of_a_version_has_no_secrets(bench: Bench) -> None:
    master, client, package = bench.master(), bench.client(), bench.package(GUARDED)
    client.apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    shown = asks(master, "GET", "flows/numbers/versions/1/text").json()
    assert "hunter2" not in shown["text"]
    assert "config: {user: •••, password: •••}" in shown["text"]
    assert [line for line in shown["text"].splitlines() if "•••" not in line] == [
        line for line in GUARDED.splitlines() if "config" not in line
    ]
