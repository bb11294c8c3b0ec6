"""docs/rest.md: what it lets a reader type works, and what it says of codes and paths is so."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, blocks_of, run_commands

from harness.pages.openapi import openapi_document
from scribengin.client.problems import STATUSES

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/rest.md"
TEXT = (ROOT / PAGE).read_text()


@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page takes curl")
def test_the_commands_of_the_page_work_beside_one_that_is_up(tmp_path: Path) -> None:
    asking, tokens = [block.text.splitlines() for block in blocks_of(PAGE) if not block.language][:2]
    home = tmp_path / ".scribengin"
    settings = {name: value for name, value in os.environ.items() if not name.startswith("SCRIBENGIN_")} | {"HOME": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-m", "scribengin.cli", "server", "dev"], cwd=tmp_path, env=settings) as up:
        try:
            deadline = time.monotonic() + 120
            while not (home / "up.json").exists():
                assert time.monotonic() < deadline
                assert up.poll() is None
                time.sleep(0.2)
            # as far as the first event, however long that takes; the stream itself ends with `up`
            once = [re.sub(r"curl -N (.*)", r"head -n 3 < <(curl -sN \1 2> /dev/null) > events", line) for line in asking]
            once = [re.sub(r"^curl (-X PUT )?\$URL", r"curl -s \1$URL", line) for line in once]
            run_commands([line if "wanted" not in line else f"{line} > wanted" for line in once], tmp_path, HOME=str(tmp_path))
            assert (tmp_path / "events").read_text().startswith("event: flows\nid: 0\ndata: []")
            assert json.loads((tmp_path / "wanted").read_text())["code"] == "flow-unknown"
            run_commands([line if " list" not in line else f"{line} --json > tokens" for line in tokens], tmp_path, HOME=str(tmp_path))
            listed = json.loads((tmp_path / "tokens").read_text())["result"]
            assert [each["name"] for each in listed] == ["ann", "build", "ci"]
            up.send_signal(signal.SIGINT)
            assert up.wait(120) == 0
        finally:
            up.kill()


def test_every_path_of_the_table_is_one_of_the_document() -> None:
    paths = openapi_document()["paths"]
    told = set(re.findall(r"`(?:GET|PUT|POST|DELETE) (/[\w/{}]+)`", TEXT)) | set(re.findall(r"(/v1/[\w/{}]+)`", TEXT))
    known = {re.sub(r"\{\w+\}", "{}", path) for path in paths} | {"/v1/openapi.json"}
    assert told
    assert {re.sub(r"\{\w+\}", "{}", path) for path in told} <= known


def test_every_path_of_the_document_is_in_the_table() -> None:
    table = re.sub(r"\?\w+=\w+", "", TEXT).replace("{label}={value}", "{quota}")
    told = [re.sub(r"\{\w+\}", "{}", each) for each in re.findall(r"`(?:[A-Z]+ )?([/…][^\s`]*)`", table)]

    def is_told(path: str) -> bool:
        return any(each == path or (each.startswith("…/") and path.endswith(each[1:])) for each in told)

    paths = [path for path in openapi_document()["paths"] if path != "/v1/registry/"]  # the root of `/v1/registry/{path}`
    assert not [path for path in paths if not is_told(re.sub(r"\{\w+\}", "{}", path))]


def test_every_code_of_the_table_has_its_status() -> None:
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    table = TEXT[TEXT.index("| status |") :].partition("\n\n")[0]
    for row in table.splitlines()[2:]:
        statuses = [int(number) for number in re.findall(r"\d{3}", row.partition("|")[2].partition("|")[0])]
        for name in re.findall(r"`([a-z-]+)`", row):
            assert f'"{name}"' in code, name
            assert STATUSES.get(name, statuses[0]) in statuses, name
