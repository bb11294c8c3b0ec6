"""Questions of someone who has never seen the console. Each is answered in at most four clicks from the fleet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Locator, Page, expect

from harness.dev_plane import LIMIT_S, DevPlane
from scribengin.local.contract import EndView, QueryView
from scribengin.watching.producer_signal import BEHIND
from tests.console.test_flow_parts import BROKEN, ORDERS
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.console.scene import Scene

MOST_CLICKS = 4
ANSWER_MS = 120_000
SLOW = QueryView(
    "kept",
    "running",
    seconds=600.0,
    lag_rows=40_000,
    lag_s=300.0,
    falls_behind=True,
    slowest=("odd", 0.92),
    sources={"numbers": EndView(400, 130.0, lag_rows=40_000, lag_s=300.0)},
)

pytestmark = pytest.mark.timeout(900)


class Visitor:
    """Clicks on what is in sight, and counts the clicks since the fleet was opened."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.clicks = 0
        page.goto(f"{url}/#/")
        expect(page.get_by_role("heading", level=1, name=re.compile("^Fleet"))).to_be_visible()

    def click(self, shown: Locator) -> None:
        """Raises AssertionError if it is not in sight, or is one click too many."""
        expect(shown).to_be_visible()
        self.clicks += 1
        assert self.clicks <= MOST_CLICKS, f"click {self.clicks}: {shown}"
        shown.click()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevPlane]:
    """With a flow that failed at a line of its code, and one with dead letters, of which one is repaired."""
    plane = DevPlane(tmp_path_factory.mktemp("plane"))
    with plane.up():
        plane.apply("orders", ORDERS)
        plane.apply("broken", BROKEN)
        with plane.client() as client:
            look_until(lambda: client.batches("orders").batches, "a Batch of orders", LIMIT_S, 1)
            key = next(letter.key for letter in client.dead_letters("orders") if letter.record == "orders/a.jsonl+10")
            plane.command("dead-letter", "edit", "orders", key, "--set", "amount=12")
            look_until(lambda: (status := client.flow("broken").status) and status.state == "failed", "broken has failed", LIMIT_S, 1)
        yield plane


def test_which_line_of_which_file_broke_a_flow(plane: DevPlane, page: Page) -> None:
    visitor = Visitor(page, plane.url)
    visitor.click(page.get_by_role("link", name="broken", exact=True))
    visitor.click(page.get_by_role("link", name="Workers", exact=True))
    expect(page.locator(".place").first).to_have_text("sums.py:6")
    expect(page.get_by_role("article").first).to_contain_text("ZeroDivisionError")


def test_send_the_repaired_dead_letter_on(plane: DevPlane, page: Page) -> None:
    page.set_default_timeout(ANSWER_MS)
    visitor = Visitor(page, plane.url)
    visitor.click(page.get_by_role("link", name="5 dead letters of orders"))
    letters = page.get_by_role("region", name="dead letters", exact=True)
    visitor.click(letters.get_by_role("row").filter(has_text="repaired").get_by_role("link"))
    visitor.click(page.get_by_role("button", name="send the repaired one on"))
    visitor.click(page.get_by_role("dialog", name="replay").get_by_role("button", name="replay", exact=True))
    expect(page.get_by_role("dialog", name="replay")).to_contain_text("Requested: 1 dead letter, 1 of them repaired")
    page.keyboard.press("Escape")
    expect(page.get_by_text("It was replayed.")).to_be_visible(timeout=ANSWER_MS)
    assert {"id": 100, "country": "FR", "amount": 12.0} in plane.rows("orders")


def test_why_is_a_flow_behind_and_since_when(scene: Scene, page: Page) -> None:
    late = f"{BEHIND}the oldest waiting entry is 16.0 s old, max_delay is 15.0 s"
    scene.numbers("degraded", late, "the flow continues; see: scribengin top numbers")
    scene.reports("numbers", SLOW)
    visitor = Visitor(page, scene.url)
    expect(page.get_by_role("table", name="flows")).to_contain_text("odd takes 92% of the Batch")
    visitor.click(page.get_by_role("link", name="numbers", exact=True))
    expect(page.get_by_text(late)).to_be_visible()
    expect(page.get_by_text("since 2026-11-29T08:00:00Z")).to_be_visible()
    expect(page.locator(".now")).to_contain_text("odd takes 92% of the Batch")


def test_a_flow_without_a_bound_says_since_when_the_oldest_waits(scene: Scene, page: Page) -> None:
    scene.numbers()
    scene.reports("numbers", SLOW)
    visitor = Visitor(page, scene.url)
    visitor.click(page.get_by_role("link", name="numbers", exact=True))
    expect(page.locator(".now")).to_contain_text(re.compile(r"the oldest 5.*; the oldest came at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"))
    expect(page.locator(".now")).to_contain_text("odd takes 92% of the Batch")


def test_a_click_too_many_is_counted(scene: Scene, page: Page) -> None:
    visitor = Visitor(page, scene.url)
    theme = page.get_by_title("light or dark")
    for _ in range(MOST_CLICKS):
        visitor.click(theme)
    with pytest.raises(AssertionError, match="click 5"):
        visitor.click(theme)
