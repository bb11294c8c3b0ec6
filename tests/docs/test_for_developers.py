"""The files for developers and operators beside the docs: what they call exists, and linters have nothing to say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from scribengin.cli.main import scribengin

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
_PYTHON = re.compile(r"^```python\n.*?^```$", re.MULTILINE | re.DOTALL)
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
HOOKS: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
OURS = sorted(name for name, service in COMPOSE["services"].items() if service["image"] == "scribengin")
CALLS = [
    *((f"compose.yaml {name}", COMPOSE["services"][name]["command"]) for name in OURS),
    *(
        (f"{file}: {call}", call.split())
        for file in ("compose.yaml", "CONTRIBUTING.md", "SECURITY.md")
        for call in re.findall(r"^[#\s]*scribengin ((?:[a-z]+ ).+)$", _PYTHON.sub("", (ROOT / file).read_text()), re.MULTILINE)
    ),
]


def test_hadolint_has_nothing_to_say_of_the_dockerfile() -> None:
    linted = subprocess.run([BIN / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout) == (0, ""), linted.stderr


def test_the_compose_file_is_one() -> None:
    command = [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", ROOT / "compose.yaml"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_compose_file_brings_up_a_control_plane() -> None:
    assert OURS == ["master", "node"]
    assert set(COMPOSE["services"]) == {"zookeeper", "kafka", *OURS}
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert published == ["127.0.0.1:8080:8080"]  # the API asks for no token there: nobody else may reach it
    for service in COMPOSE["services"].values():
        for volume in service["volumes"]:
            name = volume.partition(":")[0]
            assert name == "./data" or name in COMPOSE["volumes"]


@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in CALLS])
def test_commands_and_options_are_those_of_the_command_line(call: list[str]) -> None:
    command: click.Command | None = scribengin
    while isinstance(command, click.Group):
        name, *call = call
        command = command.get_command(click.Context(command), name)
    assert command is not None
    with command.make_context(name, list(call), resilient_parsing=True) as context:
        assert not context.args
    known = {option for parameter in command.params for option in parameter.opts}
    assert [word for word in call if word.startswith("--") and word not in known] == []


def test_what_the_image_takes_is_there_and_let_in() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    of_both = [*lines, *(ROOT / "deploy/agent/Dockerfile").read_text().splitlines()]
    taken = {name for line in of_both if line.startswith("COPY") and "--from" not in line for name in line.split()[1:-1]}
    let_in = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert taken == let_in
    assert [name for name in taken if not (ROOT / name).exists()] == []
    (extras,) = re.findall(r'whl\)\[([a-z,]+)\]"', "\n".join(lines))
    assert {"all", "kafka", "kubernetes"} <= set(extras.split(","))  # the chart runs nodes with that launcher


def test_hooks_are_of_this_folder_and_call_what_make_calls() -> None:
    assert [repository["repo"] for repository in HOOKS["repos"]] == ["local"]  # nothing is fetched
    makefile = (ROOT / "Makefile").read_text()
    for hook in HOOKS["repos"][0]["hooks"]:
        (call,) = re.findall(r"^make ([a-z-]+)$", hook["entry"])
        assert re.search(rf"^{call}:", makefile, re.MULTILINE)


def test_targets_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    assert {"setup", "check", "test", "test-install"} <= named
    assert [target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
