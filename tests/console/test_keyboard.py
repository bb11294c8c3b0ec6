"""The keyboard alone on every page: Tab reaches everything, what has the focus is seen, dialogs give the focus back."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

import scribengin
from tests.api.conftest import Bench
from tests.console.full_scene import ADDRESSES, FLOW, LETTER, full_scene
from tests.console.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

DIALOGS = {
    f"/flows/{FLOW}": ["pause", "drain", "stop", "rewind", "scale", "limit"],
    f"/flows/{FLOW}/dead": ["replay all", "purge all", "restore purged"],
    f"/flows/{FLOW}/dead/{LETTER}": ["replay"],
    f"/flows/{FLOW}/versions": ["roll back"],
    "/quotas": ["set a quota"],
    "/peers": ["set a peer"],
    "/groups": ["disable near", "set cost of near"],
    "/agents": ["drain web1"],
    "/agents?show=gateways": ["set chain of dmz"],
    "/agents/web1": ["map a tier"],
    "/registry/groups%2Fdisks": ["edit"],
    "/tokens": ["make a token"],
}
MOST_STOPS = 250
MARKED = """() => {
  const could = [...document.querySelectorAll("main :is(a[href], button, input, select, textarea, summary, [tabindex])")];
  const stops = could.filter((each) => !each.disabled && each.tabIndex >= 0 && each.checkVisibility({visibilityProperty: true}));
  stops.forEach((each, nth) => each.setAttribute("data-stop", nth));
  const name = (each) => each.getAttribute("aria-label") || each.textContent.trim().slice(0, 40) || each.name || each.type;
  return stops.map((each) => `${each.localName} ${name(each)}`);
}"""
FOCUSED = """() => {
  const focused = document.activeElement;
  if (!focused || focused === document.body) return {place: "nowhere"};
  const place = focused.closest("dialog") ? "dialog" : focused.id === "main" ? "main" : focused.closest("main") ? "content" : "frame";
  const drawn = focused.ownerSVGElement ? focused.querySelector("rect") : focused;
  const style = getComputedStyle(drawn);
  let shown = {left: 0, top: 0, right: innerWidth, bottom: innerHeight};
  for (let around = drawn.parentElement; around; around = around.parentElement) {
    if (getComputedStyle(around).overflow === "visible" || around === document.documentElement || around === document.body) continue;
    const box = around.getBoundingClientRect();
    shown = {
      left: Math.max(shown.left, box.left), top: Math.max(shown.top, box.top),
      right: Math.min(shown.right, box.right), bottom: Math.min(shown.bottom, box.bottom),
    };
  }
  const across = (left, right) => Math.min(right, shown.right) - Math.max(left, shown.left);
  const down = (top, bottom) => Math.min(bottom, shown.bottom) - Math.max(top, shown.top);
  const within = (left, top, right, bottom) => [across(left, right), down(top, bottom)];
  const box = drawn.getClientRects()[0];
  const [wide, high] = within(box.left, box.top, box.right, box.bottom);
  let sides = 0;
  if (focused.ownerSVGElement) {
    sides = parseFloat(style.strokeWidth) >= 3 && wide > 4 && high > 4 ? 4 : 0;
  } else if (style.outlineStyle !== "none") {
    const inner = parseFloat(style.outlineOffset), outer = inner + parseFloat(style.outlineWidth);
    const bands = [[box.left - outer, box.top, box.left - inner, box.bottom], [box.right + inner, box.top, box.right + outer, box.bottom],
      [box.left, box.top - outer, box.right, box.top - inner], [box.left, box.bottom + inner, box.right, box.bottom + outer]];
    sides = bands.map((band) => within(...band)).filter(([width, height]) => width >= 2 && height >= 2).length;
  }
  const name = focused.getAttribute("aria-label") || focused.textContent.trim().slice(0, 40);
  return {place, stop: focused.getAttribute("data-stop"), in_sight: wide >= 2 && high >= 2, sides, name};
}"""
SIDES = 2
"""of the outline that are seen at least: a region may be larger than the window"""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The tests of this file share it: none changes anything."""
    with ExitStack() as stack:
        bench = Bench(tmp_path_factory.mktemp("bench"), stack)
        yield full_scene(bench, bench.master())


def opened(page: Page, scene: Scene, address: str, heading: str) -> None:
    page.goto(f"{scene.url}/#{address}")
    expect(page.get_by_role("heading", level=1, name=heading)).to_be_visible()
    expect(page.locator("[aria-busy]")).to_have_count(0)


def focused(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(FOCUSED)
    return found


def test_each_page_has_a_case() -> None:
    text = (Path(scribengin.__file__).parent / "api/console/main.js").read_text(encoding="utf-8")
    pages = re.findall(r'^  \["(/[^"]*)", "\w+", "[\w ]+", "[\w ]+"\],$', text, re.MULTILINE)
    assert len(pages) > 20
    assert set(pages) == {pattern for pattern in ADDRESSES if "?" not in pattern}


@pytest.mark.parametrize("pattern", ADDRESSES)
def test_tab_reaches_everything_and_what_has_the_focus_is_seen(scene: Scene, page: Page, pattern: str) -> None:
    address, heading, title = ADDRESSES[pattern]
    opened(page, scene, address, heading)
    expect(page).to_have_title(f"{title} – Scribengin")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="skip to the content")).to_be_focused()
    expect(page.get_by_role("link", name="skip to the content")).to_be_in_viewport(ratio=1)
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    stops: list[str] = page.evaluate(MARKED)
    reached: list[int] = []
    faults: list[str] = []
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        now = focused(page)
        if now["place"] != "content":
            break
        if now["stop"] is not None:
            reached.append(int(now["stop"]))
        if not now["in_sight"]:
            faults.append(f"not in sight: {now['name']}")
        elif now["sides"] < SIDES:
            faults.append(f"no outline: {now['name']}: {now['sides']} sides")
    else:
        faults.append("the focus does not leave the page")
    faults += [f"not reached: {name}" for number, name in enumerate(stops) if number not in reached]
    assert faults == []
    assert reached == sorted(reached), "Tab goes as the page is read"


@pytest.mark.parametrize(("address", "button"), [(address, button) for address, buttons in DIALOGS.items() for button in buttons])
def test_a_dialog_keeps_the_focus_and_gives_it_back(scene: Scene, page: Page, address: str, button: str) -> None:
    page.goto(f"{scene.url}/#{address}")
    opener = page.get_by_role("button", name=button, exact=True).first
    for key, close in (("Enter", "Escape"), ("Space", "Enter")):
        opener.focus()
        opener.press(key)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        count = dialog.locator("button:enabled, input, select, textarea, a[href]").count()
        places = []
        while len(places) < count + 2 or places[-1] != "dialog":
            page.keyboard.press("Tab")
            places.append(focused(page)["place"])
            assert len(places) < MOST_STOPS
        assert set(places) <= {"dialog", "nowhere"}, "nowhere: the browser itself, whose buttons follow those of the dialog"
        assert "dialog" in places
        if close == "Enter":
            dialog.get_by_role("button", name="close").first.focus()
        page.keyboard.press(close)
        expect(dialog).to_have_count(0)
        expect(opener).to_be_focused()


def test_after_a_link_the_focus_is_in_the_page_that_it_shows(scene: Scene, page: Page) -> None:
    opened(page, scene, "/", "Fleet")
    for name, heading in (("Hosts", "Hosts"), ("Agents", "Agents"), ("Fleet", "Fleet")):
        link = page.get_by_role("navigation", name="pages").get_by_role("link", name=name)
        link.focus()
        link.press("Enter")
        expect(page.get_by_role("heading", level=1, name=heading)).to_be_visible()
        expect(page.locator("main")).to_be_focused()
        expect(page).to_have_title(f"{name} – Scribengin")
    page.get_by_role("link", name=FLOW, exact=True).press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.get_by_role("group", name=f"graph of {FLOW}").get_by_role("link").first.press("Enter")
    expect(page.get_by_role("region", name="node numbers")).to_be_visible()
    expect(page).to_have_title(f"numbers, {FLOW}, Node – Scribengin")
    page.go_back()
    expect(page).to_have_title(f"{FLOW}, Graph – Scribengin")


def test_space_presses_a_filter_and_enter_opens_a_summary(scene: Scene, page: Page) -> None:
    opened(page, scene, "/", "Fleet")
    state = page.get_by_role("button", name=re.compile("running"))
    state.press("Space")
    expect(state).to_have_attribute("aria-pressed", "true")
    expect(state).to_be_focused()
    state.press("Enter")
    expect(state).to_have_attribute("aria-pressed", "false")


def test_an_address_that_is_not_valid_shows_a_page(scene: Scene, page: Page) -> None:
    opened(page, scene, "/", "Fleet")
    page.evaluate("location.hash = '#/flows/%'")
    expect(page.get_by_role("heading", level=1, name="Nothing is here")).to_be_visible()
    expect(page).to_have_title("Nothing is here – Scribengin")


def test_a_dialog_whose_button_is_gone_gives_the_focus_to_the_page(bench: Bench, page: Page) -> None:
    scene = Scene(bench, bench.master())
    opened(page, scene, f"/flows/{scene.numbers()}", FLOW)
    page.get_by_role("button", name="pause").press("Enter")
    dialog = page.get_by_role("dialog", name="pause")
    dialog.get_by_role("button", name="pause", exact=True).press("Enter")
    expect(dialog).to_contain_text("The master has it.")
    scene.status(FLOW, "paused")
    expect(dialog).to_contain_text("The flow is paused.")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="pause")).to_have_count(0)
    expect(page.locator("main")).to_be_focused()
