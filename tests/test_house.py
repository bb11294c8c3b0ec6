"""How the source tree is kept: names that mean one thing each, and a wheel without this repository's own parts."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


@cache
def modules(source: Path) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(source.rglob("*.py"))}


def public_classes(source: Path) -> dict[str, list[str]]:
    found = defaultdict(list)
    for path, tree in modules(source).items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(source)))
    return found


def test_each_public_class_has_a_name_of_its_own() -> None:
    assert not {name: places for name, places in public_classes(SOURCE).items() if len(places) > 1}


def test_a_name_of_two_classes_is_found(tmp_path: Path) -> None:
    for file in ("a.py", "b.py"):
        (tmp_path / file).write_text("class Gate:\n    pass\n\n\nclass _Own:\n    pass\n")
    assert public_classes(tmp_path) == {"Gate": ["a.py", "b.py"]}


ENTRIES = (
    "scribengin",
    "scribengin.cli.__main__",
    "scribengin.worker.__main__",
    "scribengin.reading",  # users read what is committed with it
    "scribengin.testing",  # and test their flows, connectors and sinks with these
    "scribengin.testing.own_sinks",
    "scribengin.testing.sqlite_store",
)
LOADED_BY_NAME = ("scribengin.cli.commands.", "scribengin.connectors.", "scribengin.testing.conformance")
COPIED = {"scribengin.cli.template.steps"}
"""into the folder that `scribengin init` makes"""


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(tree: ast.Module) -> set[str]:
    """All names that may be modules: of imports, wherever they stand, and of texts that name a module to load."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("scribengin."):
            found.add(node.value.partition(":")[0])
    return found


def unused_modules(source: Path) -> set[str]:
    names = {module_name(path, source): tree for path, tree in modules(source).items()}
    known = {name: tree for name, tree in names.items() if name.partition(".")[0] == "scribengin"}
    reached: set[str] = set()
    waiting = [name for name in known if name in ENTRIES or name.startswith(LOADED_BY_NAME)]
    while waiting:
        name = waiting.pop()
        if name in known and name not in reached:
            reached.add(name)
            waiting += [name.rpartition(".")[0], *imported_by(known[name])]
    return set(known) - reached - COPIED


def test_each_module_of_the_wheel_serves_a_user() -> None:
    """One that only tests, campaigns or pages of this repository import belongs in `src/harness`."""
    assert not unused_modules(SOURCE)
    of_package = {path: tree for path, tree in modules(SOURCE).items() if path.is_relative_to(SOURCE / "scribengin")}
    assert not [path for path, tree in of_package.items() if any(name.partition(".")[0] == "harness" for name in imported_by(tree))]


def test_a_module_that_nobody_imports_is_found(tmp_path: Path) -> None:
    for name, text in {"__init__": "", "reading": "from scribengin import used", "used": "", "unused": "import scribengin.used"}.items():
        (tmp_path / "scribengin").mkdir(exist_ok=True)
        (tmp_path / "scribengin" / f"{name}.py").write_text(text)
    assert unused_modules(tmp_path) == {"scribengin.unused"}


def test_the_wheel_has_the_package_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"scribengin"}


PRIVATE_WORDS = {"look", "told", "said", "found", "heard", "stands"}


def test_no_function_has_a_name_that_says_nothing() -> None:
    def names(tree: ast.AST) -> set[str]:
        return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}

    assert not {path: bad for path, tree in modules(SOURCE).items() if (bad := names(tree) & PRIVATE_WORDS)}
