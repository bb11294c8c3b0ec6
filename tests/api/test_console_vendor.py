"""The third-party modules of the console: of the locked versions, with their licenses, fit for a strict content security policy."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
VENDOR = ROOT / "src/scribengin/api/console/vendor"
TESTS = ROOT / "tests/console"
FILES = ("preact.js", "hooks.js", "htm.js", "dagre.js", "uplot.js", "uplot.css")
FORBIDDEN = {
    "a bare import": r"""\b(?:from|import)\s*\(?\s*["'](?!\./)[^"']*["']""",
    "eval": r"\beval\s*\(",
    "new Function": r"\bnew\s+Function\b|\bFunction\s*\(",
    "a source map": r"sourceMappingURL",
    "markup with styles": r"setAttribute\(\s*[\"']style[\"']|<\w+[^>]* style=",
}


def maker() -> Any:
    spec = importlib.util.spec_from_file_location("console_vendor", ROOT / ".ci/console_vendor.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks for its module
    spec.loader.exec_module(module)
    return module


def versions(folder: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((folder / "versions.json").read_text())
    return found


def locked() -> dict[str, dict[str, Any]]:
    packages = json.loads((ROOT / ".ci/console/package-lock.json").read_text())["packages"]
    return {path.removeprefix("node_modules/"): package for path, package in packages.items() if path}


def test_the_files_are_those_that_are_listed() -> None:
    assert sorted(path.name for path in VENDOR.iterdir()) == sorted((*FILES, "versions.json", "LICENSES.txt"))
    assert sorted(versions(VENDOR)) == sorted(FILES)
    assert [*versions(TESTS)] == ["axe.min.js"]
    assert sum(path.stat().st_size for path in VENDOR.iterdir()) < 200_000


@pytest.mark.parametrize(
    ("folder", "name"), [*((VENDOR, name) for name in FILES), (TESTS, "axe.min.js")], ids=lambda value: str(value)[-10:]
)
def test_a_file_is_whole_and_of_the_locked_version(folder: Path, name: str) -> None:
    listed = versions(folder)[name]
    assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == listed["sha256"]
    assert listed["version"] == locked()[listed["package"]]["version"]


@pytest.mark.parametrize("folder", [VENDOR, TESTS], ids=["shipped", "tested"])
def test_each_package_has_its_license(folder: Path) -> None:
    texts = (folder / "LICENSES.txt").read_text()
    listed = versions(folder)
    packages = {each["package"] for each in listed.values()} | ({"@dagrejs/graphlib"} if folder == VENDOR else set())
    for package in packages:
        of_package = re.search(
            rf"^=+\n{package} {locked()[package]['version']} \([^\n]+\): ([^\n]+)\n=+\n\n(.+?)(?=^=|\Z)", texts, re.M | re.S
        )
        assert of_package is not None, package
        assert {name for name, each in listed.items() if each["package"] == package} <= {*of_package[1].split(", ")}
        assert re.search("Permission is hereby granted|Apache License|Mozilla Public License", of_package[2]), package


def test_the_lock_has_exact_versions_hashes_and_no_address() -> None:
    asked = json.loads((ROOT / ".ci/console/package.json").read_text())
    wanted = asked["dependencies"] | asked["devDependencies"]
    assert {name: locked()[name]["version"] for name in wanted} == wanted
    assert all(package["integrity"].startswith("sha512-") for package in locked().values())
    for path in (ROOT / ".ci/console").iterdir():
        assert "://" not in path.read_text(), path


@pytest.mark.parametrize("name", FILES)
def test_a_file_runs_under_a_strict_content_security_policy(name: str) -> None:
    text = (VENDOR / name).read_text()
    assert not {what: found[0] for what, pattern in FORBIDDEN.items() if (found := re.search(pattern, text)) is not None}


@pytest.mark.parametrize(
    "line",
    [
        'import{h}from"preact";',
        "import 'preact/hooks'",
        'import("preact")',
        "eval('1')",
        "new Function('')",
        "//# sourceMappingURL=x.map",
        "a.setAttribute('style','')",
        'b=`<p style="x">`',
    ],
)
def test_what_is_forbidden_is_found(line: str) -> None:
    assert any(re.search(pattern, line) for pattern in FORBIDDEN.values())


def test_a_module_is_adapted_to_its_folder() -> None:
    adapted = maker().adapted
    assert adapted('import{options as n}from"preact";x()\n//# sourceMappingURL=x.map') == 'import{options as n}from"./preact.js";x()\n'
    assert adapted("import * as h from 'preact/hooks'") == "import * as h from './hooks.js'\n"
    assert adapted("var u=1;\n", "export default u;") == "var u=1;\nexport default u;\n"
    with pytest.raises(SystemExit, match="imports react, which is not among the files"):
        adapted('import r from"react"')


def test_a_lock_is_written_without_addresses() -> None:
    package = {
        "version": "1.0.0",
        "resolved": "https://example.org/a.tgz",
        "integrity": "sha512-a",
        "funding": {"url": "https://example.org"},
    }
    written = json.loads(maker().without_addresses(json.dumps({"packages": {"node_modules/a": package}})))
    assert written == {"packages": {"node_modules/a": {"version": "1.0.0", "integrity": "sha512-a"}}}
