"""The console's frame, its fleet and its acts, in a real browser at a real master."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import expect

from scribengin.api.serving import Listen
from scribengin.cli.commands.top import _figures
from scribengin.cli.main import scribengin
from scribengin.core.time_text import shown_moment
from scribengin.core.units import show_bytes, show_duration
from scribengin.local.contract import EndView, QueryView
from scribengin.watching.flow_figures import going_text
from tests.api.conftest import says as says
from tests.console.scene import BEHIND, Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.api.conftest import Bench

HOSTILE = "<img src=x onerror=\"document.title='run'\"> \u202ecba <script>document.title='run'</script>"


def names(page: Page) -> list[str]:
    return page.locator(".fleet-row a.flow").all_inner_texts()


def test_the_fleet_shows_the_worst_flow_first_with_its_reason_and_the_next_step(scene: Scene, page: Page) -> None:
    scene.flow("a_well")
    scene.flow("b_behind")
    scene.flow("c_failed", "failed", "step enrich: KeyError: 'country' (enrich.py:7)", "mend enrich.py:7, then: scribengin resume c_failed")
    scene.flow("d_paused", "paused")
    scene.reports("a_well", rows_per_s=5.0, sources={"orders": EndView(5, 5.0)}, sinks={})
    scene.reports("b_behind", BEHIND)
    page.goto(scene.url)
    expect(page.get_by_role("heading", level=1)).to_contain_text("4 flows")
    expect(page.locator(".fleet-row a.flow").nth(1)).to_have_text("b_behind")
    assert names(page) == ["c_failed", "b_behind", "d_paused", "a_well"], "d_paused is not as it is wanted"
    worst = page.locator(".fleet-row").nth(1)
    expect(worst).to_contain_text("enrich.py:7")
    expect(worst).to_contain_text("scribengin resume c_failed")
    expect(page.locator(".fleet-row").nth(2)).to_contain_text("enrich takes 81% of the Batch")


def test_top_and_the_fleet_say_the_same(scene: Scene, page: Page) -> None:
    scene.flow("behind")
    scene.reports("behind", BEHIND)
    [row] = scene.bench.client().overview()
    rate_in, rate_out, waits, *_ = _figures(row["now"])
    page.goto(scene.url)
    line = page.locator(".fleet-row").nth(1)
    for text in (row["why"], waits, f"{rate_in} in", f"{rate_out} out"):
        expect(line).to_contain_text(text)


def test_status_the_graph_and_the_page_of_a_flow_say_the_same(scene: Scene, page: Page, says: Callable[..., dict[str, Any]]) -> None:
    name = scene.numbers("running", "the lag grows", "scale it")
    assert scene.master.plane.watch is not None
    at = scene.master.plane.watch.board.now()
    scene.master.plane.watch.board.now = lambda: at
    scene.reports(
        name,
        replace(BEHIND, slowest=("odd", 0.81), sources={"numbers": BEHIND.sources["orders"]}),
    )
    status, [row] = says("status", name)["result"], [each for each in scene.bench.client().overview() if each["flow"] == name]
    assert status["now"] == row["now"], "top has the figures of status"
    [source] = [node for node in says("graph", name, "--steps")["result"]["nodes"] if node["node"] == "numbers"]
    assert source["live"]["rows_per_s"] == status["now"]["rows_in_per_s"]
    assert source["live"]["lag_rows"] == status["now"]["lag_rows"]
    going = going_text("running", status["now"])
    assert going in CliRunner().invoke(scribengin, ["status", name]).output
    shown = says("batch", "list", name)["result"]

    page.goto(f"{scene.url}/#/flows/{name}/node/numbers")
    expect(page.locator(".now")).to_contain_text(going)
    expect(page.locator("main")).to_contain_text("the lag grows")
    expect(page.locator("main")).to_contain_text("scale it")
    box = page.locator("a.node", has_text="numbers").first
    expect(box).to_contain_text("412 rows/s")
    panel = page.get_by_role("region", name="node numbers")
    expect(panel).to_contain_text(re.compile(rf"rows that wait\s*{source['live']['lag_rows']:,}"))
    expect(panel).to_contain_text(re.compile(rf"oldest that waits\s*{show_duration(source['live']['lag_seconds'])}"))
    page.goto(f"{scene.url}/#/flows/{name}/batches")
    expect(page.get_by_text("No Batch is decided yet.")).to_be_visible()
    assert shown["batches"] == []


def test_the_trend_of_the_lag_is_known_from_before_the_page_was_opened(scene: Scene, page: Page) -> None:
    scene.flow("behind")
    assert scene.master.plane.watch is not None
    board = scene.master.plane.watch.board
    clock = board.now
    for minutes, rows in ((8, 10), (4, 500), (0, 12_345)):
        board.now = lambda minutes=minutes: clock() - 60 * minutes
        scene.reports("behind", replace(BEHIND, lag_rows=rows))
    board.now = clock
    page.goto(scene.url)
    trend = page.get_by_role("img", name="the lag grows")
    expect(trend).to_be_visible()
    expect(trend.locator("path")).to_have_attribute("d", re.compile(r"^M\d+ 20\.0L\d+ 19\.2L\d+ 1\.0"))


def test_numbers_are_written_as_the_commands_write_them(scene: Scene, page: Page) -> None:
    page.goto(scene.url)
    seconds = [0, 0.04, 0.05, 0.25, 0.75, 0.35, 9.94, 9.95, 9.99, 10, 10.5, 11.5, 59.5, 60, 200, 3599.5, 7500, 86399.6, 86400, 360_000.7]
    sizes = [0, 1, 1023, 1024, 1280, 1536, 2**20 - 1, 2**20, 146_800_640, 5 * 2**30, 3 * 2**40, 2**52]
    counts = [0, 0.5, 1.5, 2.5, 999.5, 1000, 1_234_567.4]
    moments = ["2026-11-26T17:46:14.706+00:00", "2026-11-26T18:46:14+01:00", "none yet"]
    found = page.evaluate(
        """async ([seconds, sizes, counts, moments]) => {
          const format = await import("/console/lib/format.js");
          return [seconds.map(format.duration), sizes.map(format.bytes), counts.map(format.count), moments.map(format.moment)];
        }""",
        [seconds, sizes, counts, moments],
    )
    assert found == [
        [show_duration(each) for each in seconds],
        [show_bytes(each) for each in sizes],
        [f"{each:,.0f}" for each in counts],
        [shown_moment(each) for each in moments],
    ]


def test_a_thousand_flows_are_filtered_and_only_those_in_sight_are_drawn(scene: Scene, page: Page) -> None:
    for number in range(1000):
        scene.flow(f"f{number:04}", labels={"team": "shop"} if number % 100 == 0 else {})
    page.goto(scene.url)
    expect(page.get_by_role("heading", level=1)).to_contain_text("1,000 flows")
    assert 5 < page.locator(".fleet-row").count() < 60
    page.locator(".window").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    expect(page.get_by_role("cell", name="f0999", exact=True)).to_be_visible()
    page.get_by_role("searchbox", name="filter").fill("team=shop")
    expect(page.locator(".fleet-row a.flow")).to_have_count(10)
    page.get_by_role("searchbox", name="filter").fill("f0123")
    expect(page.locator(".fleet-row a.flow")).to_have_text(["f0123"])
    page.reload()
    expect(page.locator(".fleet-row a.flow"), "the filter is in the address").to_have_text(["f0123"])


def test_a_change_is_seen_at_once_also_after_the_connection_was_lost(scene: Scene, page: Page) -> None:
    scene.flow("orders")
    page.goto(scene.url)
    state = page.locator(".fleet-row").nth(1)
    expect(state).to_contain_text("running")
    scene.status("orders", "failed", "the disk is full")
    expect(state).to_contain_text("the disk is full")
    page.context.set_offline(True)
    expect(page.get_by_text("The connection to the master is lost")).to_be_visible()
    expect(state).to_contain_text("failed")
    scene.status("orders", "running")
    page.context.set_offline(False)
    expect(page.get_by_text("The connection to the master is lost")).to_be_hidden()
    expect(state).to_contain_text("running")


def test_an_act_shows_its_command_and_its_request_and_what_happens_next(scene: Scene, page: Page) -> None:
    scene.numbers()
    page.goto(f"{scene.url}/#/flows/numbers")
    page.get_by_role("button", name="pause").click()
    dialog = page.get_by_role("dialog", name="pause")
    expect(dialog).to_contain_text("scribengin pause numbers")
    expect(dialog).to_contain_text(f"curl -X PUT {scene.url}/v1/flows/numbers/wanted")
    expect(dialog).to_contain_text("""-d '{"state":"paused"}'""")
    dialog.get_by_role("button", name="pause", exact=True).click()
    expect(dialog).to_contain_text("The master has it. The flow is running")
    assert scene.desired("numbers").state == "paused"
    scene.status("numbers", "paused")
    expect(dialog).to_contain_text("The flow is paused.")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    lines = [json.loads(line) for line in scene.bench.audit.read_text().splitlines()]
    assert [(line["what"], line["outcome"]) for line in lines][-1:] == [("paused", "done")]


def test_a_destructive_act_asks_for_the_name(scene: Scene, page: Page) -> None:
    scene.numbers()
    page.goto(f"{scene.url}/#/flows/numbers")
    page.get_by_role("button", name="stop").click()
    dialog = page.get_by_role("dialog", name="stop")
    run = dialog.get_by_role("button", name="stop", exact=True)
    expect(run).to_be_disabled()
    dialog.get_by_role("textbox").fill("number")
    expect(run).to_be_disabled()
    assert scene.desired("numbers").state == "running"
    dialog.get_by_role("textbox").fill("numbers")
    dialog.get_by_role("textbox").press("Enter")
    expect(dialog).to_contain_text("The master has it.")
    assert scene.desired("numbers").state == "stopped"


def test_a_user_signs_in_sees_what_the_role_allows_and_is_asked_again_when_the_session_is_over(
    bench: Bench, page: Page, expected_errors: list[str]
) -> None:
    viewer, operator = bench.tokens.add("vera", "viewer", {}), bench.tokens.add("olga", "operator", {})
    scene = Scene(bench, bench.master(listen=Listen(asks=True)), bench.tokens.add("ed", "editor", {}))
    scene.numbers()
    expected_errors.append("401")
    page.goto(f"{scene.url}/#/flows/numbers")
    page.get_by_label("Token").fill("sgt_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("this token is not valid here")
    page.get_by_label("Token").fill(viewer)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("numbers")
    expect(page.get_by_text("vera, viewer")).to_be_visible()
    expect(page.get_by_role("button", name="pause")).to_have_count(0)
    expect(page.get_by_role("link", name="Tokens")).to_have_count(0)
    assert page.evaluate("document.cookie") == ""
    bench.tokens.remove("vera")
    expect(page.get_by_label("Token")).to_be_visible()
    page.get_by_label("Token").fill(operator)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="pause")).to_be_visible()
    page.get_by_role("button", name="sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_flow_that_is_deleted_while_it_is_shown_is_said_to_be_gone(scene: Scene, page: Page, expected_errors: list[str]) -> None:
    scene.numbers()
    expected_errors.append("404")
    page.goto(f"{scene.url}/#/flows/numbers")
    expect(page.get_by_role("heading", level=1)).to_have_text("numbers")
    client = scene.bench.client()
    client.want("numbers", "stopped")
    scene.status("numbers", "stopped")
    client.delete("numbers")
    expect(page.get_by_role("alert")).to_contain_text('there is no flow "numbers"')
    page.get_by_role("link", name="Go to the fleet").click()
    expect(page.get_by_text("No flow has been applied here yet.")).to_be_visible()


def test_texts_of_others_are_texts(scene: Scene, page: Page) -> None:
    scene.numbers("failed", HOSTILE, HOSTILE)
    page.goto(scene.url)
    expect(page.locator(".fleet-row .why[role=cell]")).to_contain_text(HOSTILE)
    page.get_by_role("link", name="numbers").click()
    expect(page.locator(".fault")).to_contain_text(HOSTILE)
    expect(page.locator("img")).to_have_count(0)
    assert "run" not in page.title()


def test_the_graph_shows_each_node_with_its_figures_and_the_bottleneck(scene: Scene, page: Page) -> None:
    scene.numbers()
    ends = {"sources": {"numbers": EndView(10, 5.0, lag_rows=30_000, lag_s=95.0)}, "sinks": {"kept": EndView(4, 2.0)}}
    late = {"lag_rows": 30_000, "lag_s": 95.0, "falls_behind": True, "slowest": ("odd", 0.9)}
    scene.reports("numbers", QueryView("kept", "running", seconds=60.0, **ends, **late))  # type: ignore[arg-type]
    page.goto(f"{scene.url}/#/flows/numbers")
    graph = page.get_by_role("group", name="graph of numbers")
    expect(graph.get_by_role("link")).to_have_count(3)
    expect(graph.get_by_role("link", name=re.compile("^numbers source: files"))).to_contain_text("5 rows/s, 30,000 rows wait")
    expect(graph.get_by_role("link", name=re.compile("^odd .*bottleneck"))).to_be_visible()
    expect(page.locator(".now")).to_contain_text("odd takes 90% of the Batch")
    graph.get_by_role("link", name=re.compile("^odd ")).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="node odd")).to_contain_text("filter")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_have_no_fault_of_accessibility_and_fit_a_phone(
    scene: Scene, page: Page, accessibility_faults: Callable[[Page], list[str]], theme: str
) -> None:
    scene.numbers("degraded", "it falls behind", "give it more cores")
    scene.reports("numbers", BEHIND)
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    for address, shown in (("#/", "a.flow"), ("#/flows/numbers/node/odd", ".panel"), ("#/nothing", "h1")):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(f"{scene.url}/{address}")
        expect(page.locator(shown).first).to_be_visible()
        assert accessibility_faults(page) == []
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address


def test_a_rewind_shows_first_what_is_read_again(scene: Scene, page: Page, accessibility_faults: Callable[[Page], list[str]]) -> None:
    scene.numbers()
    page.goto(f"{scene.url}/#/flows/numbers")
    page.get_by_role("button", name="rewind").click()
    dialog = page.get_by_role("dialog", name="rewind")
    run = dialog.get_by_role("button", name="rewind", exact=True)
    dialog.get_by_role("combobox").select_option("after a Batch")
    dialog.get_by_role("textbox", name="Batch").fill("0")
    dialog.get_by_label("type numbers to confirm").fill("numbers")
    expect(run).to_be_disabled()
    expect(dialog).to_contain_text("scribengin offsets rewind numbers --to-batch 0 --yes")
    dialog.get_by_role("textbox", name="Batch").fill("x")
    expect(dialog.get_by_role("button", name="show what is read again")).to_be_disabled()
    assert accessibility_faults(page) == []


def test_a_limit_is_set_and_removed(scene: Scene, page: Page) -> None:
    scene.numbers()
    page.goto(f"{scene.url}/#/flows/numbers")
    page.get_by_role("button", name="limit").click()
    dialog = page.get_by_role("dialog", name="limit")
    expect(dialog).to_contain_text("no limit now")
    dialog.get_by_label("rows per second").fill("500")
    expect(dialog).to_contain_text("scribengin limit numbers --rows-per-second 500")
    dialog.get_by_role("button", name="set the limit").click()
    expect(dialog).to_contain_text("The limit is 500 rows/s.")
    assert scene.bench.client().limits("numbers").limits[""] == {"rows_per_s": 500.0}
    dialog.get_by_role("button", name="close").last.click()
    page.get_by_role("button", name="limit").click()
    expect(dialog).to_contain_text("whole flow: 500 rows/s")
    dialog.get_by_role("button", name="remove the limit").click()
    expect(dialog).to_contain_text("There is no limit.")


def test_a_flow_is_scaled(scene: Scene, page: Page) -> None:
    scene.numbers()
    page.goto(f"{scene.url}/#/flows/numbers")
    page.get_by_role("button", name="scale").click()
    dialog = page.get_by_role("dialog", name="scale")
    dialog.get_by_label("cores").fill("0")
    expect(dialog.get_by_role("button", name="scale", exact=True)).to_be_disabled()
    dialog.get_by_label("cores").fill("2")
    expect(dialog).to_contain_text("scribengin scale numbers.main --cores 2")
    dialog.get_by_role("button", name="scale", exact=True).click()
    expect(dialog).to_contain_text("Version 2 is wanted now.")
    assert scene.desired("numbers").version == 2
