"""The Makefile, the lock files and .ci/run: what a fresh machine relies on."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_make_help_lists_every_verb():
    verbs = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line.split()[1] for line in shown.splitlines()] == verbs.group(1).split()
    assert subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True).stdout == shown


def test_the_locks_hold_every_package_with_hashes_and_no_address():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
        *project["project"]["optional-dependencies"]["jre"],
    ]
    locks = [(ROOT / name).read_text() for name in ("requirements.lock", "requirements-dev.lock", "requirements-jre.lock")]
    entries = dict(re.findall(r"^([\w-]+)==\S+(.*?)(?=^\w|\Z)", "\n".join(locks), re.MULTILINE | re.DOTALL))
    for requirement in wanted:
        name = re.match(r"[\w.-]+", requirement).group().lower().replace(".", "-").replace("_", "-")
        assert name == "scribengin" or "--hash=sha256:" in entries[name], name  # an extra may name another one of ours
    for lock in locks:
        assert "://" not in lock  # httpx2 is a package
        assert "via" not in lock


def test_ci_run_checks_and_tests():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    ran = re.findall(r"^make ([\w-]+)", script.read_text(), re.MULTILINE)
    assert ran == ["setup", "test-install", "check", "test", "test-rest"]


def test_without_a_fit_python_setup_says_what_to_install(tmp_path):
    for name in ("Makefile", "requirements-dev.lock", "requirements-jre.lock", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    ended = subprocess.run(["make", "setup", "PYTHON="], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "No Python 3.11 or newer" in ended.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_programs_that_make_starts_are_there():
    makefile = (ROOT / "Makefile").read_text()
    scripts = re.findall(r"\$\(BIN\)/python ((?:\w+/)+\w+\.py)", makefile)
    modules = re.findall(r"\$\(BIN\)/python -m (scribengin[\w.]+)", makefile)
    assert len(scripts) >= 2
    for script in scripts:
        assert (ROOT / script).is_file(), script
    for module in modules:
        place = ROOT / "src" / module.replace(".", "/")
        assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file(), module
