"""What `doctor` finds: the result of a check, as a line of its table, as JSON and as a problem. The checks of this machine and those of a
cluster share it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import click

from scribengin.core.errors import ScribenginError
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

State = Literal["ok", "warning", "missing"]
_SAFE_MODE = "wait until it has left safe mode; see the reason with: hdfs dfsadmin -safemode get"
_DATA = b"written by scribengin doctor\n"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `state` is ok, warning (Scribengin runs, but with a disadvantage) or missing (it cannot run)."""

    check: str
    state: State
    found: str
    remedy: str = ""

    @property
    def problem(self) -> Problem:
        """The finding as a problem; for one that is not ok."""
        severity: Literal["error", "warning"] = "error" if self.state == "missing" else "warning"
        code = re.sub(r"[^a-z0-9]+", "-", self.check.lower())
        return Problem(f"doctor-{code}", Place(""), f"{self.check}: {self.found}", self.remedy, severity)


def is_missing(findings: Iterable[Finding]) -> bool:
    """True if Scribengin cannot run, by one of the findings."""
    return any(finding.state == "missing" for finding in findings)


def show_findings(findings: Sequence[Finding]) -> None:
    """Print the findings as a table."""
    marks = {"ok": click.style("✓", fg="green"), "warning": click.style("!", fg="yellow"), "missing": click.style("✗", fg="red")}
    width = max(9, *(len(finding.check) for finding in findings))
    for finding in findings:
        click.echo(f"{marks[finding.state]} {finding.check:<{width}} {finding.found}")


def check_files(check: str, folder: Path) -> Finding:
    """Check that a file can be written, read and deleted in a folder, also of another file system."""
    probe = folder / f".doctor.{uuid4().hex}"
    try:
        probe.write_bytes(_DATA)
        same = probe.read_bytes() == _DATA
        probe.unlink()
    except ScribenginError as error:
        if "SafeModeException" in error.message:
            return Finding(check, "missing", f"{folder} cannot be written: HDFS is in safe mode", _SAFE_MODE)
        return Finding(check, "missing", error.message, error.remedy)
    except OSError as error:
        return Finding(check, "missing", f"{folder} cannot be used: {error}", "give this user the right to read and write there")
    if not same:
        return Finding(check, "missing", f"{probe} has another content than was written", "check the file system")
    return Finding(check, "ok", f"{folder}: a file was written, read and deleted")
