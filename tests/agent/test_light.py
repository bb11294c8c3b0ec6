"""What an agent's process imports: so little that it is up in a second and stays below 60 MB."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/scribengin"
HEAVY = (
    "anyio",
    "click",
    "fastapi",
    "httpx2",
    "kazoo",
    "numpy",
    "prometheus_client",
    "pyarrow",
    "pygments",
    "pyspark",
    "rich",
    "ruamel",
    "sqlglot",
    "structlog",
    "uvicorn",
    "yaml",
)
MAY = {"agent", "wal", "wire", "core"}
PARENT = {"spec", "spec.functions"}
"""`import scribengin` loads these two, which are small, for whoever writes flows in Python"""
PROGRAM = """
import importlib, json, pkgutil, sys
import scribengin.agent.process, scribengin.wal, scribengin.wire
for package in (scribengin.agent, scribengin.wal, scribengin.wire):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""
"""also what is imported when an input is opened"""


def imported() -> list[str]:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    modules: list[str] = json.loads(ended.stdout)
    return modules


def test_the_process_of_an_agent_imports_no_heavy_package() -> None:
    modules = imported()
    assert "scribengin.wire.frames" in modules
    assert not {name.partition(".")[0] for name in modules} & {*HEAVY}


def test_the_process_of_an_agent_imports_only_its_own_parts_of_scribengin() -> None:
    own = {name.removeprefix("scribengin.") for name in imported() if name.startswith("scribengin.")}
    assert {name for name in own - PARENT if name.partition(".")[0] not in MAY} == set()


def test_make_check_knows_every_part_that_an_agent_may_not_import() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each["type"] == "forbidden")
    assert {*contract["source_modules"]} == {f"scribengin.{name}" for name in MAY - {"core"}}
    parts = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert {*contract["forbidden_modules"]} == {f"scribengin.{name}" for name in parts - MAY}
