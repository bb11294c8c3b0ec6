"""A real browser for the tests of the console. Tests wait by `playwright.sync_api.expect`, never for a time."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from harness.browser import require_browser
from tests.api.conftest import Bench
from tests.console.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT_MS = 60_000
_NO_NAMES = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
"""neither a page nor Chromium itself reaches another machine"""
_TELLS_VIOLATIONS = """\
addEventListener("securitypolicyviolation", (event) => console.error(
  `violates ${event.effectiveDirective} (${event.disposition}): ${event.blockedURI} ${event.sample}`));
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for the tests of a file: as long as it is there, `asyncio.run` fails in this thread, and tests of other folders call it."""
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=require_browser(), args=[_NO_NAMES], timeout=4 * WAIT_MS)
        yield started
        started.close()


@pytest.fixture
def expected_errors() -> list[str]:
    """Patterns of errors that a test expects in the browser; the test adds them. One that does not occur fails the test."""
    return []


@pytest.fixture
def page(browser: Browser, expected_errors: list[str]) -> Iterator[Page]:
    """A page of its own. After the test there may be no error in the browser's console, no exception, no violation of the content security
    policy, and no request to another origin than the first one, except what `expected_errors` names."""
    context = browser.new_context(
        locale="en-GB", timezone_id="UTC", viewport={"width": 1280, "height": 800}, reduced_motion="reduce", service_workers="block"
    )
    context.set_default_timeout(WAIT_MS)
    context.add_init_script(_TELLS_VIOLATIONS)
    errors: list[str] = []
    origins: list[tuple[str, str]] = []

    def requested(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"data", "blob"}:
            origins.append(parts[:2])
            if origins[0] != parts[:2]:
                errors.append(f"a request leaves the origin: {url}")

    def crashes(opened: Page) -> None:
        opened.on("crash", lambda _page: errors.append("the page crashed"))

    context.on("console", lambda message: errors.append(f"console: {message.text}") if message.type == "error" else None)
    context.on("weberror", lambda error: errors.append(f"exception: {error.error}"))
    context.on("request", lambda request: requested(request.url))
    context.on("page", crashes)
    yield context.new_page()
    context.close()
    unexpected = [error for error in errors if not any(re.search(pattern, error) for pattern in expected_errors)]
    missing = [pattern for pattern in expected_errors if not any(re.search(pattern, error) for error in errors)]
    assert not unexpected, "\n".join(unexpected)
    assert not missing, f"expected errors did not occur: {missing}"


@pytest.fixture
def accessibility_faults() -> Callable[[Page], list[str]]:
    """A function: what axe finds on a page, as `rule: description: elements`. It runs also under a strict content security policy."""
    source = Path(__file__).with_name("axe.min.js").read_text(encoding="utf-8")

    def faults(page: Page) -> list[str]:
        page.evaluate(f"{source}; 0")
        found: dict[str, Any] = page.evaluate("axe.run({resultTypes: ['violations']})")
        return [f"{rule['id']}: {rule['help']}: {', '.join(str(node['target']) for node in rule['nodes'])}" for rule in found["violations"]]

    return faults


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Masters over a registry in memory; see tests/api."""
    with ExitStack() as stack:
        yield Bench(tmp_path, stack)


@pytest.fixture
def scene(bench: Bench) -> Scene:
    """A master that needs no token, without flows."""
    return Scene(bench, bench.master())
