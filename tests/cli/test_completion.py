"""Completion in shells: commands, groups, options and values; whatever is wrong, nothing is printed but words."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import ShellComplete

from scribengin.cli.main import scribengin

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {large: {from: orders, filter: id > 5}, odd: {from: large, filter: id % 2 = 1}}
sinks: {kept: {from: odd, type: files, path: out, format: json}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "settings.yaml").write_text("state: x\n")
    (tmp_path / "app.py").write_text("from scribengin import Flow\n")
    (tmp_path / "other.py").write_text("import os\n")
    (tmp_path / "broken.yaml").write_text("sources: {orders: [}\nsteps: {")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "below.yml").write_text(FLOW)
    return tmp_path


def ended(words: str, shell: str = "bash") -> subprocess.CompletedProcess[str]:
    """As a shell asks, the cursor behind the last character."""
    given = {"_SCRIBENGIN_COMPLETE": f"{shell}_complete", "COMP_WORDS": words}
    given["COMP_CWORD"] = words.rpartition(" ")[2] if shell == "fish" else str(len(words.split(" ")) - 1)
    return subprocess.run([sys.executable, "-m", "scribengin.cli"], env=os.environ | given, capture_output=True, text=True, check=False)


def offered(words: str) -> list[str]:
    *before, incomplete = words.split(" ")[1:]
    found = ShellComplete(scribengin, {}, "scribengin", "_SCRIBENGIN_COMPLETE").get_completions(before, incomplete)
    return [item.value for item in found if item.type == "plain"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("scribengin dea", ["dead-letter"]),
        ("scribengin off", ["offsets"]),
        ("scribengin offsets ", ["show", "set", "skip", "rewind"]),
        ("scribengin node und", ["undrain"]),
        ("scribengin server ", ["dev", "master", "node", "gateway"]),
        ("scribengin flow pa", ["pause"]),
        ("scribengin dead-letter re", ["replay"]),
        ("scribengin dead re", ["replay"]),
        ("scribengin dev-", ["dev-services", "dev-jars"]),
        ("scribengin node drain --wa", ["--wait"]),
        ("scribengin groups set --o", ["--out", "--output"]),
        ("scribengin plan ", ["app.py", "broken.yaml", "flow.yaml"]),
        ("scribengin plan data/", ["data/below.yml"]),
        ("scribengin run fl", ["flow.yaml"]),
        ("scribengin preview flow.yaml --at ", ["orders", "large", "odd", "kept"]),
        ("scribengin preview flow.yaml --at o", ["orders", "odd"]),
        ("scribengin preview broken.yaml --at ", []),
        ("scribengin preview gone.yaml --at ", []),
        ("scribengin preview app.py --at ", []),
        ("scribengin offsets set flow.yaml ", ["orders"]),
        ("scribengin offsets set flow.yaml orders ", ["end"]),
        ("scribengin dead-letter list flow.yaml --query ", ["kept"]),
        ("scribengin dead-letter list flow.yaml --reason malf", ["malformed"]),
        ("scribengin object list flow.yaml --sink ", ["kept"]),
        ("scribengin explain state-ch", ["state-changed"]),
        ("scribengin run flow.yaml --progress ", ["auto", "live", "plain", "off"]),
        ("scribengin status flow.yaml --output ", ["text", "json"]),
        ("scribengin nosuch --x", []),
    ],
)
@pytest.mark.usefixtures("folder")
def test_words_are_offered_for(words: str, found: list[str]) -> None:
    assert offered(words) == found


@pytest.mark.usefixtures("folder")
def test_hidden_commands_are_offered_once_a_character_is_typed() -> None:
    all_of_them = offered("scribengin ")
    assert {"plan", "node", "flow"} <= set(all_of_them)
    assert not {"shell", "dev-jars", "up", "dead"} & set(all_of_them)
    assert offered("scribengin she") == ["shell"]


@pytest.mark.usefixtures("folder")
def test_without_a_flow_file_the_shell_completes_files() -> None:
    for words in ("scribengin plan da", "scribengin plan nowhere/"):
        answer = ended(words)
        assert answer.stdout.startswith("file,")
        assert answer.stderr == ""


@pytest.mark.usefixtures("folder")
def test_nothing_is_printed_if_the_line_cannot_be_understood() -> None:
    for shell in ("bash", "zsh", "fish", "nosuch"):
        for words in ("scribengin plan --nosuch x --ye", "scribengin 'open", "scribengin group set-cost a b x "):
            answer = ended(words, shell)
            assert "rror" not in answer.stdout + answer.stderr
            assert answer.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.usefixtures("folder")
def test_other_shells_get_the_same_words(shell: str) -> None:
    answer = ended("scribengin offsets s", shell)
    assert "show" in answer.stdout
    assert "Show the position of every source in every query." in answer.stdout
    assert "kept" in ended("scribengin preview flow.yaml --at k", shell).stdout


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_the_script_works_in_bash(folder: Path) -> None:
    program = folder / "scribengin"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m scribengin.cli "$@"\n')
    program.chmod(0o755)
    script = """
        source <(scribengin completion bash) 2>/dev/null
        COMP_WORDS=(scribengin preview flow.yaml --at o); COMP_CWORD=4
        complete -p scribengin >/dev/null && _scribengin_completion scribengin
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "--norc", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["orders", "odd"], "")
