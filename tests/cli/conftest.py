"""`command("plan", "flow.yaml", "--json")` runs the command line in this process and returns status, stdout and stderr."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scribengin.cli.main import main


@dataclass
class Ended:
    status: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, Any]:
        """The one object of --json; checks the shape that every command shares."""
        value = json.loads(self.out)
        assert list(value) == ["command", "ok", "result", "problems"]
        assert value["ok"] is (self.status == 0)
        for problem in value["problems"]:
            assert list(problem) == ["severity", "code", "file", "line", "column", "message", "remedy"]
        return value

    @property
    def codes(self) -> list[str]:
        return [problem["code"] for problem in self.object["problems"]]


Command = Callable[..., Ended]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def run(*arguments: object) -> Ended:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ended(int(left.value.code or 0), out, err)

    return run
