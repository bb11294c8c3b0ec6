"""`make bench-console`: the first view of a fleet of 1,000 flows, a graph of 500 boxes and its updates, in a real browser; and what 50 open
consoles cost a master. The master has its registry in memory; it runs in a process of its own.

The consoles of the last measurement are streams, as the page of the fleet opens them; it asks for nothing else.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
from playwright.sync_api import Browser, sync_playwright

from harness.browser import require_browser

FLOWS, CONSOLES = 1000, 50
THIRDS = 167
"""parts of the large flow: a source, a step and a sink each"""
_WATCH = """\
window.long = [];
const seen = (list) => list.getEntries().forEach((each) => window.long.push(each.duration));
new PerformanceObserver(seen).observe({type: "longtask", buffered: true});
"""
_FRAMES = """async () => {
  const {render} = await import("/console/vendor/preact.js");
  const {html} = await import("/console/lib/html.js");
  const {Graph} = await import("/console/pages/flow.js");
  const graph = await (await fetch("/v1/flows/numbers/graph")).json();
  const box = document.body.appendChild(document.createElement("div"));
  const nodes = (turn) => graph.nodes.map((node) => ({...node, live: {rows_per_s: turn, rows: turn}}));
  const draw = (turn) => render(html`<${Graph} graph=${{...graph, nodes: nodes(turn)}} flow="numbers"
    slow=${new Set()} dead=${new Map()}/>`, box);
  draw(0);
  await new Promise((done) => setTimeout(done, 1000));
  window.long.length = 0;
  const began = performance.now();
  let turn = 0;
  while (performance.now() - began < 3000) {
    draw(turn += 1);
    await new Promise(requestAnimationFrame);
  }
  return [turn / ((performance.now() - began) / 1000), Math.max(0, ...window.long)];
}"""


def main() -> None:
    """Measure, and print each figure with its bar."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=5)
    asked = options.parse_args()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there,), daemon=True)
    process.start()
    try:
        url = here.recv()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=require_browser())
            views = [view(browser, f"{url}/", ".fleet-row", 10) for _ in range(asked.repeats)]
            graphs = [view(browser, f"{url}/#/flows/numbers", ".graph .node", 3 * THIRDS) for _ in range(asked.repeats)]
            rate, longest = frames(browser, url)
            browser.close()
        print(f"fleet of {FLOWS:,} flows, first view: {_spread([each for each, _ in views])} s (bar: 1.5)")
        print(f"graph of {3 * THIRDS} boxes, drawn: {_spread([each for each, _ in graphs])} s after the address was opened (bar: 1)")
        print(f"its longest task while it loads: {max(long for _, long in graphs):.0f} ms")
        print(f"its figures change {rate:.0f} times a second (bar: 60), longest task {longest:.0f} ms (bar: 100)")
        rest, busy = consoles(here, url, process.pid)
        print(
            f"{CONSOLES} consoles cost the master at rest {rest:.1%} of a core (bar: 5%), with {FLOWS:,} flows that all change {busy:.0%}"
        )
    finally:
        process.kill()


def view(browser: Browser, address: str, selector: str, least: int) -> tuple[float, float]:
    """(seconds from the request of the page until so many elements are drawn, milliseconds of the longest task)."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, bypass_csp=True)
    page = context.new_page()
    page.add_init_script(_WATCH)
    page.goto(address, wait_until="commit")
    found = page.wait_for_function(
        "([selector, least]) => document.querySelectorAll(selector).length >= least"
        " && [performance.now() / 1000, Math.max(0, ...window.long)]",
        arg=[selector, least],
        polling=10,
    ).json_value()
    context.close()
    return found[0], found[1]


def frames(browser: Browser, url: str) -> tuple[float, float]:
    """(drawings a second of the large graph with other figures each time, milliseconds of the longest task meanwhile)."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, bypass_csp=True)
    page = context.new_page()
    page.add_init_script(_WATCH)
    page.goto(f"{url}/#/nothing")
    rate, longest = page.evaluate(_FRAMES)
    context.close()
    return rate, longest


def consoles(master: Any, url: str, pid: int) -> tuple[float, float]:
    """The share of a core that the streams of 50 consoles cost the master: at rest, and while all flows change."""
    alone = {phase: _load(master, pid, phase) for phase in ("rest", "busy")}
    ended = threading.Event()
    streams = [threading.Thread(target=_stream, args=(url, ended), daemon=True) for _ in range(CONSOLES)]
    for stream in streams:
        stream.start()
    time.sleep(5)  # all of them have all flows
    loaded = {phase: _load(master, pid, phase) for phase in ("rest", "busy")}
    ended.set()
    return loaded["rest"] - alone["rest"], loaded["busy"] - alone["busy"]


def _load(master: Any, pid: int, phase: str, seconds: float = 20.0) -> float:
    master.send(phase)
    assert master.recv() == phase
    time.sleep(3)
    process = psutil.Process(pid)
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / (time.monotonic() - began)


def _stream(url: str, ended: threading.Event) -> None:
    with suppress(httpx2.TransportError), httpx2.stream("GET", f"{url}/v1/events?figures=true", timeout=None) as stream:
        for _ in stream.iter_raw():
            if ended.is_set():
                return


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def serve(pipe: Any) -> None:
    """The master, in its own process. `busy`: all flows report once a second, with other figures."""
    from scribengin.local.contract import EndView
    from tests.api.conftest import Bench
    from tests.console.scene import Scene

    with ExitStack() as stack:
        bench = Bench(Path(tempfile.mkdtemp()), stack)
        scene = Scene(bench, bench.master())
        scene.submit(large())
        scene.status("numbers", "running")
        names = [f"f{number:04}" for number in range(FLOWS - 1)]
        for name in names:
            scene.flow(name)

        def report(turn: int) -> None:
            for name in names:
                scene.reports(
                    name, lag_rows=turn, sources={"orders": EndView(turn, 5.0, lag_rows=turn)}, sinks={"kept": EndView(turn, 4.0)}
                )

        report(0)
        httpx2.get(f"{scene.url}/v1/flows/numbers/graph", timeout=60)
        pipe.send(scene.url)
        phase, turn = "rest", 0
        while True:
            if pipe.poll(1.0):
                phase = pipe.recv()
                pipe.send(phase)
            if phase == "busy":
                report(turn := turn + 1)


def large() -> str:
    """A flow of 501 nodes."""
    sections: dict[str, list[str]] = {"sources": [], "steps": [], "sinks": []}
    for number in range(THIRDS):
        sections["sources"].append(f'  s{number}: {{type: files, path: d{number}, format: json, schema: "id BIGINT"}}')
        sections["steps"].append(f'  f{number}: {{from: s{number}, filter: "id > {number}"}}')
        sections["sinks"].append(f"  k{number}: {{from: f{number}, type: files, path: o{number}, format: json}}")
    return "version: 1\nname: numbers\n" + "".join(f"{name}:\n" + "\n".join(lines) + "\n" for name, lines in sections.items())


if __name__ == "__main__":
    main()
