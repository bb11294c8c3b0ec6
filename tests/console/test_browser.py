"""The vendored modules run in a browser under a strict content security policy, and the fixture `page` finds faults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect
from starlette.applications import Starlette
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from scribengin.api.serving import Listen, open_listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request

VENDOR = Path(__file__).parents[2] / "src/scribengin/api/console/vendor"
STRICT = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
TRUSTED = f"{STRICT}; require-trusted-types-for 'script'; trusted-types 'none'"
PAGE = """\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>modules</title><link rel="stylesheet" href="/vendor/uplot.css"></head>
<body><main id="app"></main><script type="module" src="/main.js"></script></body>
</html>
"""
SCRIPT = """\
import { h, render } from "/vendor/preact.js";
import { useEffect, useRef, useState } from "/vendor/hooks.js";
import htm from "/vendor/htm.js";
import dagre from "/vendor/dagre.js";
import uPlot from "/vendor/uplot.js";

const html = htm.bind(h);

function laidOut() {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const name of ["a", "b", "c"]) graph.setNode(name, { label: name, width: 80, height: 40 });
  graph.setEdge("a", "b");
  graph.setEdge("b", "c");
  dagre.layout(graph);
  return graph.nodes().map((name) => graph.node(name).x);
}

function Chart() {
  const place = useRef(null);
  useEffect(() => {
    const chart = new uPlot(
      { width: 400, height: 200, title: "rows", series: [{}, { label: "rows", stroke: "#06c" }] },
      [[1, 2, 3], [10, 30, 20]],
      place.current,
    );
    return () => chart.destroy();
  }, []);
  return html`<div ref=${place}></div>`;
}

function App() {
  const [count, setCount] = useState(0);
  return html`
    <h1>Modules</h1>
    <button type="button" style=${{ minWidth: "8rem" }} onClick=${() => setCount(count + 1)}>count ${count}</button>
    <p id="layout">${laidOut().join(" ")}</p>
    <${Chart} />`;
}

render(html`<${App} />`, document.getElementById("app"));
"""


@pytest.fixture(params=[STRICT, TRUSTED], ids=["strict", "trusted-types"])
def policy(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


@pytest.fixture
def served(tmp_path: Path, policy: str) -> Iterator[Callable[[str, str], str]]:
    """A function that takes the page and its script, and returns the page's URL."""

    def document(_request: Request) -> Response:
        return HTMLResponse((tmp_path / "page.html").read_text(), headers={"Content-Security-Policy": policy})

    def script(_request: Request) -> Response:
        return FileResponse(tmp_path / "main.js", media_type="text/javascript")

    routes = [Route("/", document), Route("/main.js", script), Mount("/vendor", StaticFiles(directory=VENDOR))]
    with open_listener(Listen("127.0.0.1", 0)) as listener, listener.serve(Starlette(routes=routes)):

        def write(page: str, main: str) -> str:
            (tmp_path / "page.html").write_text(page)
            (tmp_path / "main.js").write_text(main)
            return listener.url

        yield write


def test_the_vendored_modules_run_under_a_strict_policy(
    page: Page, served: Callable[[str, str], str], accessibility_faults: Callable[[Page], list[str]]
) -> None:
    page.goto(served(PAGE, SCRIPT))
    button = page.get_by_role("button", name="count 0")
    button.click()
    expect(page.get_by_role("button", name="count 1")).to_have_css("min-width", "128px")
    left, middle, right = map(float, page.locator("#layout").inner_text().split())
    assert left + 80 < middle < right - 80
    expect(page.locator("canvas")).to_be_visible()
    drawn = """(canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0)"""
    assert page.locator("canvas").evaluate(drawn)
    expect(page.locator(".u-title")).to_have_css("text-align", "center")  # uplot.css is there
    assert accessibility_faults(page) == []


@pytest.mark.parametrize("policy", [STRICT], indirect=True, ids=["strict"])
def test_a_page_that_cannot_be_used_by_all_is_found(
    page: Page, served: Callable[[str, str], str], accessibility_faults: Callable[[Page], list[str]]
) -> None:
    page.goto(served(PAGE.replace("</main>", "<button></button></main>"), ""))
    assert [fault.partition(":")[0] for fault in accessibility_faults(page)] == ["button-name", "page-has-heading-one"]


@pytest.mark.parametrize(
    ("script", "first", "others"),
    [
        ("console.error('broken')", "^console: broken$", []),
        ("document.body.innerHTML = '<p style=\"color: red\">x</p>'", "console: violates style-src-attr", ["inline style"]),
        ("try { eval('1') } catch { }", "console: violates script-src", []),
        ("fetch('https://example.org/').catch(() => 0)", "console: violates connect-src", ["example.org"]),
    ],
    ids=["error", "style", "eval", "fetch"],
)
@pytest.mark.parametrize("policy", [STRICT], indirect=True, ids=["strict"])
def test_an_error_in_the_console_of_the_browser_is_found(
    page: Page, served: Callable[[str, str], str], expected_errors: list[str], script: str, first: str, others: list[str]
) -> None:
    expected_errors += [first, *others]
    with page.expect_console_message(lambda message: re.search(first, f"console: {message.text}") is not None):
        page.goto(served(PAGE, script))


@pytest.mark.parametrize("policy", [TRUSTED], indirect=True, ids=["trusted-types"])
def test_markup_in_a_text_violates_trusted_types(page: Page, served: Callable[[str, str], str], expected_errors: list[str]) -> None:
    expected_errors += ["violates require-trusted-types-for", "TrustedHTML"]
    with page.expect_event("pageerror"):
        page.goto(served(PAGE, "document.body.innerHTML = '<p>x</p>'"))


@pytest.mark.parametrize("policy", [STRICT], indirect=True, ids=["strict"])
def test_an_exception_is_found(page: Page, served: Callable[[str, str], str], expected_errors: list[str]) -> None:
    expected_errors.append("^exception: .*broken")
    with page.expect_event("pageerror"):
        page.goto(served(PAGE, "throw new Error('broken')"))


@pytest.mark.parametrize("policy", [STRICT], indirect=True, ids=["strict"])
def test_a_request_that_leaves_the_origin_is_found(page: Page, served: Callable[[str, str], str], expected_errors: list[str]) -> None:
    expected_errors.append("^a request leaves the origin: http://localhost:1/$")
    page.goto(served(PAGE, "document.querySelector('main').innerHTML = '<a href=\"http://localhost:1/\">away</a>'"))
    with page.expect_event("requestfailed"):
        page.get_by_role("link", name="away").click()
