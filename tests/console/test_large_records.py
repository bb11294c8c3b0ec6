"""Records of 10 MB among the dead letters: the console stays quick, shows what there is, and says what is cut."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from harness.dev_plane import LIMIT_S, DevPlane
from tests.console.full_scene import bury
from tests.console.test_flow_parts import ORDERS
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.client.state_models import Letter
    from tests.console.scene import Scene

LARGE = 10_000_000
ANSWER_MS = 120_000
MOST_FREEZE_MS = 1000
"""that the page may be busy at a time: a click waits so long. On a quiet machine it is a tenth"""
SCRIPT = "<script>document.title='run'</script>"
FROZEN = """() => {
  window.frozen = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((each) => { window.frozen = Math.max(window.frozen, each.duration); }))
    .observe({type: "longtask", buffered: true});
}"""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevPlane]:
    """With a record that its step refuses, and one that is no JSON; each has 10 MB."""
    plane = DevPlane(tmp_path_factory.mktemp("plane"))
    text = (SCRIPT * (LARGE // len(SCRIPT))).encode()
    records = b'{"id": 0, "amount": "1"}\n{"id": 1, "country": "%s", "amount": "twelve"}\nnot JSON %s\n' % (text, text)
    with plane.up():
        plane.apply("orders", ORDERS | {"in/a.jsonl": records})
        with plane.client() as client:
            look_until(lambda: client.batches("orders").batches, "a Batch of orders", LIMIT_S, 1)
        yield plane


def letter_of(plane: DevPlane, record: int) -> Letter:
    """The dead letter of the record on that line of the file, counted from zero."""
    with plane.client() as client:
        return next(letter for letter in client.dead_letters("orders") if letter.record == f"orders/a.jsonl+{record}")


def test_a_letter_of_10_mb_is_shown_cut_and_the_page_stays_quick(plane: DevPlane, page: Page) -> None:
    page.set_default_timeout(ANSWER_MS)
    expect.set_options(timeout=ANSWER_MS)
    for number in (1, 2):
        key = letter_of(plane, number).key
        page.goto(f"{plane.url}/#/flows/orders/dead")
        page.evaluate(FROZEN)
        page.get_by_role("region", name="dead letters", exact=True).get_by_role("link", name=key).click()
        expect(page.get_by_role("heading", name="Record")).to_be_visible()
        expect(page.locator("[aria-busy]")).to_have_count(0)
        expect(page.locator("pre").first).to_contain_text("<script>")
        expect(page.get_by_role("button", name=re.compile("^show all [0-9,]+ characters$")).first).to_be_visible()
        assert len(page.locator("main").inner_text()) < 200_000
        for button in page.get_by_role("button", name=re.compile("^show all")).all():
            button.click(trial=True)
        page.get_by_role("link", name="all dead letters").click()
        expect(page.get_by_role("region", name="dead letters", exact=True)).to_be_visible()
        assert page.evaluate("window.frozen") < MOST_FREEZE_MS
        assert page.title() == "orders, Dead letters – Scribengin"


def test_a_page_that_is_too_large_says_what_to_do(scene: Scene, page: Page, expected_errors: list[str]) -> None:
    expected_errors.append("status of 422")
    scene.numbers()
    bury(scene.master, *[b"{}"] * 7, came='{"id": "%s"}' % ("x" * 3_000_000))
    page.goto(f"{scene.url}/#/flows/numbers/dead")
    expect(page.get_by_role("alert")).to_contain_text("up to 16,777,216 are allowed")
    page.get_by_role("link", name="show 5 on a page").click()
    expect(page.get_by_role("region", name="dead letters", exact=True).get_by_role("row")).to_have_count(6)
    page.get_by_role("link", name="next page").click()
    expect(page.get_by_role("region", name="dead letters", exact=True).get_by_role("row")).to_have_count(3)


def test_a_letter_that_is_too_large_is_exported(scene: Scene, page: Page, expected_errors: list[str]) -> None:
    expected_errors.append("status of 422")
    scene.numbers()
    bury(scene.master, b"{}", came='{"id": "%s"}' % ("x" * 17_000_000))
    page.goto(f"{scene.url}/#/flows/numbers/dead?few=1")
    expect(page.get_by_text("scribengin dead-letter export numbers --to FILE")).to_be_visible()
    page.goto(f"{scene.url}/#/flows/numbers/dead/kept:0:0")
    expect(page.get_by_text("scribengin dead-letter export numbers kept:0:0 --to FILE")).to_be_visible()
