"""A viewer with a real token: no act on any page of a flow, no write by hand, and with labels only the flows that have them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import Page, expect

from scribengin.api.serving import Listen
from tests.console.full_scene import ADDRESSES, FLOW, LETTER, bury, full_scene
from tests.console.scene import Scene

if TYPE_CHECKING:
    from tests.api.conftest import Bench

PAGES = [pattern for pattern in ADDRESSES if pattern.startswith("/flows/")]
NO_ACT = re.compile("^(again|show all .*|trace)$")
"""buttons that only look"""
WRITES = (
    ("PUT", "wanted", {"state": "paused"}),
    ("DELETE", "", None),
    ("POST", "rewind", {"to_batch": 0, "yes": True}),
    ("POST", "scale", {"cores": 2}),
    ("PUT", "limit", {"target": "", "rows_per_s": 5.0, "bytes_per_s": None}),
    ("POST", "rollback", {"version": 1}),
    ("POST", "dead-letters/replays", {}),
    ("POST", "dead-letters/repairs", {"letter": LETTER, "text": "{}"}),
    ("POST", "dead-letters/purges", {}),
    ("POST", "dead-letters/purges/undo", {}),
)
SENT = """async ([method, path, body]) => {
  const headers = {"Content-Type": "application/json"};
  const answer = await fetch(`v1/flows/${path}`, {method, headers, body: body === null ? undefined : JSON.stringify(body)});
  return [answer.status, (await answer.json()).code];
}"""


def signed_in(page: Page, url: str, token: str) -> None:
    page.goto(f"{url}/#/")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1, name="Fleet")).to_be_visible()


def test_a_viewer_has_no_act_on_any_page_of_a_flow(bench: Bench, page: Page, expected_errors: list[str]) -> None:
    token, root = bench.tokens.add("vera", "viewer", {}), bench.tokens.add("root", "admin", {})
    scene = full_scene(bench, bench.master(listen=Listen(asks=True)), root)
    expected_errors += ["status of 401", "status of 403"]
    signed_in(page, scene.url, token)
    for pattern in PAGES:
        address, heading, _ = ADDRESSES[pattern]
        page.goto(f"{scene.url}/#{address}")
        expect(page.get_by_role("heading", level=1, name=heading)).to_be_visible()
        expect(page.locator("[aria-busy]")).to_have_count(0)
        expect(page.get_by_role("alert"), pattern).to_have_count(0)
        buttons = page.locator("main button:not(.copy button)").all_inner_texts()
        assert [name for name in buttons if not NO_ACT.match(name)] == [], pattern
        expect(page.get_by_role("heading", name="Repair")).to_have_count(0)
    before = scene.desired(FLOW)
    for method, part, body in WRITES:
        path = f"{FLOW}/{part}".rstrip("/")
        assert page.evaluate(SENT, [method, path, body])[0] == 403, f"{method} {path}"
    assert scene.desired(FLOW) == before


def test_the_bytes_of_records_are_not_sent_to_a_viewer(bench: Bench, page: Page, expected_errors: list[str]) -> None:
    token, root = bench.tokens.add("vera", "viewer", {}), bench.tokens.add("root", "admin", {})
    scene = Scene(bench, bench.master(listen=Listen(asks=True)), root)
    scene.numbers()
    bury(scene.master, b'{"id": "secret"}')
    expected_errors.append("status of 401")
    signed_in(page, scene.url, token)
    page.goto(f"{scene.url}/#/flows/{FLOW}/dead/{LETTER}")
    expect(page.get_by_text("The bytes of records are shown to operators and above.")).to_be_visible()
    assert "secret" not in page.content()


def test_a_viewer_with_labels_sees_only_flows_that_have_them(bench: Bench, page: Page, expected_errors: list[str]) -> None:
    token, root = bench.tokens.add("vera", "viewer", {"team": "shop"}), bench.tokens.add("root", "admin", {})
    scene = Scene(bench, bench.master(listen=Listen(asks=True)), root)
    scene.flow("mine", labels={"team": "shop"})
    scene.flow("other", labels={"team": "bank"})
    scene.flow("bare")
    expected_errors += ["status of 401", "status of 40[34]"]
    signed_in(page, scene.url, token)
    expect(page.locator(".fleet-row a.flow")).to_have_text(["mine"])
    scene.status("other", "failed", "the other's reason")
    scene.status("mine", "failed", "my reason")
    expect(page.locator(".fleet-row .why[role=cell]")).to_have_text("my reason")
    page.goto(f"{scene.url}/#/flows/other")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("the other's reason")
    expect(page.get_by_role("button", name="pause")).to_have_count(0)
