"""docs/founding-picture.md: what it shows comes about again, and its commands are those that were given."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from record_picture import FLOWS, PAGE, record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_flows_of_the_picture_know_each_other_and_bring_each_event_to_its_end_once(public_path: Path) -> None:
    picture = record(public_path / "pipeline")
    said = {command: text for _, _, commands in picture.parts for command, text in commands}
    assert re.findall(r"^\$ (.*)", PAGE.read_text(), re.MULTILINE) == [command for command in said if command]
    assert said["python look.py"].startswith("600 payments, 600 different ones\n")
    trace = said["scribengin trace payments 'payments/payments-0@0'"]
    assert re.findall(r"^flow (\w+),", trace, re.MULTILINE) == ["gather", "split", "payments"]
    assert all("balances" in said[f"scribengin audit {flow}"] for flow in FLOWS)
    assert all(f"{flow}.main" in said[""] for flow in FLOWS)
