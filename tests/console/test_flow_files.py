"""Flow files in the console: checked as one types, planned, applied; two versions side by side, and back to one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from scribengin.client.change_models import SetLimit
from scribengin.plan.validate import validate_file
from tests.api.flow_texts import FLOW, GUARDED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.console.scene import Scene


def test_a_text_is_checked_drawn_planned_and_applied(
    scene: Scene, page: Page, tmp_path: Path, accessibility_faults: Callable[[Page], list[str]]
) -> None:
    text = FLOW.replace("FOLDER", str(tmp_path))
    wrong = text.replace("from: odd", "from: even")
    file = tmp_path / "flow.yaml"
    file.write_text(wrong)
    problems = validate_file(file, {})[1]
    page.goto(f"{scene.url}/#/apply")
    page.get_by_label("flow file").fill(wrong)
    shown = page.get_by_role("list", name="problems").get_by_role("listitem")
    expect(shown).to_have_count(len(problems))
    expect(shown.first).to_contain_text(f"line {problems[0].place.line}, column {problems[0].place.column}")
    expect(shown.first).to_contain_text(problems[0].message)
    shown.first.get_by_role("button").click()
    start = page.get_by_label("flow file").evaluate("box => box.selectionStart")
    assert wrong[:start].count("\n") + 1 == problems[0].place.line

    page.get_by_label("flow file").fill(text)
    expect(page.get_by_text("No problems.")).to_be_visible()
    expect(page.get_by_role("group", name="graph of numbers")).to_contain_text("filter: id % 2 = 1")
    page.get_by_role("button", name="plan").click()
    expect(page.get_by_text("Flow numbers is new and starts.")).to_be_visible()
    assert accessibility_faults(page) == []
    assert scene.bench.client().flows() == []
    page.get_by_role("button", name="apply", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("scribengin apply numbers.yaml")
    dialog.get_by_role("button", name="apply", exact=True).click()
    expect(dialog).to_contain_text("Version 1 of numbers is submitted")
    assert scene.desired("numbers").version == 1
    scene.status("numbers", "running")
    expect(dialog).to_contain_text("Version 1 of numbers runs.")


def test_a_plan_that_is_stale_is_refused_and_nothing_is_applied(
    scene: Scene, page: Page, tmp_path: Path, expected_errors: list[str]
) -> None:
    scene.numbers()
    page.goto(f"{scene.url}/#/apply")
    page.get_by_label("flow file").fill(FLOW.replace("FOLDER", str(tmp_path)))
    page.get_by_role("button", name="plan").click()
    expect(page.get_by_text("Flow numbers runs in version 1.")).to_be_visible()
    scene.submit(FLOW.replace("FOLDER", str(tmp_path)).replace("id % 2", "id % 3"))
    page.get_by_role("button", name="apply", exact=True).click()
    expected_errors.append("the server responded with a status of 4")
    page.get_by_role("dialog").get_by_role("button", name="apply", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("plan")
    assert scene.desired("numbers").version == 2


def test_what_runs_is_compared_with_the_file(scene: Scene, page: Page, accessibility_faults: Callable[[Page], list[str]]) -> None:
    text = scene.bench.flow + "labels: {team: shop}\n"
    scene.numbers()
    page.goto(f"{scene.url}/#/apply")
    page.get_by_label("flow file").fill(text.replace("name: numbers", "name: others"))
    expect(page.get_by_text("others new")).to_be_visible()
    expect(page.get_by_role("heading", name="What runs, and this file")).to_have_count(0)
    page.get_by_label("flow file").fill(text.replace("id % 2", "id % 3"))
    table = page.get_by_role("table", name="difference of what runs, version 1 and this file")
    expect(table.locator(".gone")).to_contain_text(["id % 2"])
    expect(table.locator(".new")).to_contain_text(["id % 3", "labels"])
    assert accessibility_faults(page) == []
    page.get_by_label("flow file").fill(scene.bench.flow)
    expect(page.get_by_text("What runs is this file: version 1 of numbers.")).to_be_visible()


def test_secrets_of_what_runs_are_not_compared(scene: Scene, page: Page) -> None:
    scene.submit(GUARDED)
    scene.status("numbers", "running")
    page.goto(f"{scene.url}/#/apply")
    page.get_by_label("flow file").fill(GUARDED)
    expect(page.get_by_text("What runs is this file: version 1 of numbers.")).to_be_visible()
    page.get_by_label("flow file").fill(GUARDED.replace("table: kept", "table: others").replace("hunter2", "hunter3"))
    expect(page.locator(".diff .gone")).to_have_text("removed: table: kept", use_inner_text=False)
    expect(page.locator(".diff")).not_to_contain_text("hunter")


def test_two_versions_are_compared_and_one_of_them_comes_back(
    scene: Scene, page: Page, accessibility_faults: Callable[[Page], list[str]]
) -> None:
    scene.numbers()
    scene.submit(scene.bench.flow.replace("id % 2", "id % 3"))
    page.goto(f"{scene.url}/#/flows/numbers/versions")
    page.get_by_role("link", name="with 1").click()
    expect(page.locator(".diff .gone")).to_contain_text("id % 2")
    expect(page.locator(".diff .new")).to_contain_text("id % 3")
    assert accessibility_faults(page) == []
    page.get_by_role("button", name=re.compile("roll back")).click()
    dialog = page.get_by_role("dialog", name="roll back to 1")
    expect(dialog).to_contain_text("scribengin rollback numbers 1")
    dialog.get_by_role("textbox").fill("numbers")
    dialog.get_by_role("textbox").press("Enter")
    expect(dialog).to_contain_text("numbers is now wanted in version")
    page.reload()
    expect(page.locator(".diff .gone"), "the comparison is in the address").to_be_visible()


def test_where_what_runs_differs_from_its_file_is_shown_with_what_undoes_it(scene: Scene, page: Page) -> None:
    flow, file = scene.numbers(), scene.bench.folder / "flow.yaml"
    scene.bench.client().limit(flow, SetLimit("", 500.0, None))
    file.write_text(scene.bench.flow.replace("id % 2 = 1", "id % 3 = 1"))
    page.goto(f"{scene.url}/#/flows/{flow}/versions")
    row = page.get_by_role("region", name="set otherwise than in the file").get_by_role("row").nth(1)
    expect(row.get_by_role("cell")).to_have_text(["limit of the flow", "none", "500 rows/s", f"scribengin limit {flow} --unset"])
    difference = page.get_by_role("region", name="difference")
    expect(difference).to_contain_text("id % 3 = 1")
    expect(difference).to_contain_text("version 1, as submitted")
    scene.bench.client().limit(flow, SetLimit("", None, None))
    file.write_text(scene.bench.flow)
    page.reload()
    expect(page.get_by_text("No command has set anything otherwise than the file says.")).to_be_visible()
    expect(page.get_by_text(f"{file} is as it was submitted.")).to_be_visible()
