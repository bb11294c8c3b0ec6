"""What struck runs tell their Java."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.faults.java import java_settings

if TYPE_CHECKING:
    import pytest


def test_the_archive_that_the_environment_names_is_used_where_no_other_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:SharedArchiveFile=/of/tests.jsa -Xint")
    assert java_settings()["SPARK_SUBMIT_OPTS"].split()[-1] == "-XX:SharedArchiveFile=/of/tests.jsa"
    given = java_settings(Path("/given.jsa"))["SPARK_SUBMIT_OPTS"]
    assert given.split()[-1] == "-XX:SharedArchiveFile=/given.jsa"
    assert "/of/tests.jsa" not in given
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    assert "SharedArchiveFile" not in java_settings()["SPARK_SUBMIT_OPTS"]
