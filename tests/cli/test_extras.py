"""Without the extras: what works, and what a command says that lacks one."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from importlib.metadata import requires
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from scribengin.cli.extras import missing_extra
from scribengin.core.errors import Exit

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = (
    "backports.zstd",
    "duckdb",
    "fastapi",
    "google_crc32c",
    "kazoo",
    "lz4",
    "numpy",
    "orjson",
    "pandas",
    "prometheus_client",
    "py4j",
    "pyarrow",
    "pyspark",
    "starlette",
    "uvicorn",
    "zstandard",
)
PROGRAM = """
import sys
from importlib.abc import MetaPathFinder

class Lacking(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in PACKAGES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Lacking())
from scribengin.cli.main import main
main(sys.argv[1:])
""".replace("PACKAGES", repr(PACKAGES))
FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: id BIGINT}}
steps: {few: {from: numbers, filter: id < 6}}
sinks: {kept: {from: few, type: files, path: out, format: json}}
"""


def thin(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "flow.yaml").write_text(FLOW)
    return subprocess.run([sys.executable, "-c", PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["validate", "plan", "fmt", "status", "show"])
def test_a_thin_install_looks_at_flows(tmp_path: Path, command: str) -> None:
    ended = thin(tmp_path, command, "flow.yaml")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("arguments", [("apply", "flow.yaml"), ("status", "numbers")])
def test_a_thin_install_asks_a_control_plane(tmp_path: Path, arguments: tuple[str, str]) -> None:
    ended = thin(tmp_path, *arguments, "--master", "http://127.0.0.1:1", "--json")
    (problem,) = json.loads(ended.stdout)["problems"]
    assert problem["code"] == "master-unreachable", ended.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("run", "flow.yaml", "--once"), "spark"),
        (("test", "flow.yaml"), "spark"),
        (("preview", "flow.yaml"), "spark"),
        (("up",), "all"),
        (("master", "--registry", "zk://127.0.0.1:9/flows", "--insecure"), "all"),
        (("node", "--registry", "zk://127.0.0.1:9/flows", "--insecure"), "all"),
    ],
)
def test_a_command_that_lacks_an_extra_names_it(tmp_path: Path, arguments: tuple[str, ...], extra: str) -> None:
    ended = thin(tmp_path, *arguments)
    assert ended.returncode == Exit.ENVIRONMENT
    assert f"pip install 'scribengin[{extra}]'" in ended.stderr
    assert "Traceback" not in ended.stderr
    told = json.loads(thin(tmp_path, *arguments, "--json").stdout)
    assert [problem["code"] for problem in told["problems"]] == ["extra-missing"]


OF_RUN = ("fastapi", "google_crc32c", "kazoo", "lightkube", "lz4", "numpy", "prometheus_client", "py4j", "pyarrow", "pyspark", "starlette")


@pytest.mark.executes("extra-missing")
@pytest.mark.parametrize(
    ("package", "command_line"),
    [
        *((package, "run") for package in OF_RUN),
        *((package, "agent") for package in ("google_crc32c", "lz4")),
        *((package, "gateway") for package in ("google_crc32c", "lz4", "fastapi", "uvicorn")),
    ],
)
def test_the_extra_that_is_named_brings_the_package_and_pip_takes_the_command(package: str, command_line: str) -> None:
    fault = missing_extra(ModuleNotFoundError(name=package), command_line)
    assert fault is not None
    command = shlex.split(fault.remedy.removeprefix("install it: "))
    assert command[:2] == ["pip", "install"]
    named = Requirement(command[2])
    [extra] = named.extras
    assert package.replace("_", "-") in brought_by(named.name, extra)


def brought_by(distribution: str, extra: str) -> set[str]:
    """What the packages of an extra need, and theirs."""
    found: set[str] = set()
    left = [(distribution, extra)]
    while left:
        name, asked = left.pop()
        for each in map(Requirement, requires(name) or ()):
            if (each.marker is None or each.marker.evaluate({"extra": asked})) and each.name.lower() not in found:
                found.add(each.name.lower())
                left += [(each.name, one) for one in ["", *each.extras]]
    return found
