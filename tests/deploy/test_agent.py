"""What starts an agent on a host: the unit of systemd, the image, and the one file of `make agent-pyz`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
UNIT = ROOT / "deploy/systemd/scribengin-agent.service"
DOCKERFILE = ROOT / "deploy/agent/Dockerfile"
LIMIT_S = 60.0
MOST_EXPOSURE = 2.0
"""of systemd-analyze, from 0 (safe) to 10"""
ALONE = ("scribengin", "msgspec", "google_crc32c", "google_crc32c.libs", "lz4", "backports", "bin")
"""all that is in the one file beside what the packages say of themselves"""


@pytest.fixture(scope="module")
def flags() -> set[str]:
    """Those of the agent."""
    shown = subprocess.run([sys.executable, "-m", "scribengin.agent", "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[a-z][a-z-]+", shown))


def settings_of(unit: Path) -> dict[str, list[str]]:
    """Name → its values, of all sections."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_calls_the_agent_by_flags_that_it_has(flags: set[str]) -> None:
    (command,) = settings_of(UNIT)["ExecStart"]
    assert {word for word in shlex.split(command) if word.startswith("--")} <= flags


def test_the_unit_runs_for_good_as_a_user_without_rights_that_may_read_logs() -> None:
    settings = settings_of(UNIT)
    assert settings["Restart"] == ["always"]
    assert settings["StartLimitIntervalSec"] == ["0"]
    assert settings["DynamicUser"] == ["yes"]
    assert "adm" in settings["SupplementaryGroups"][0].split()
    assert settings["CapabilityBoundingSet"] == [""]
    (command,) = settings["ExecStart"]
    (credential,) = settings["LoadCredential"]
    assert f"${{CREDENTIALS_DIRECTORY}}/{credential.partition(':')[0]}" in command
    assert settings["StateDirectory"] == ["scribengin-agent"]
    assert "--data ${STATE_DIRECTORY}" in command


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_takes_the_unit_and_finds_it_safe(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    (command,) = settings_of(UNIT)["ExecStart"]
    unit.write_text(UNIT.read_text().replace(command.split()[0], sys.executable))  # it asks that the program is there
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    threshold = f"--threshold={MOST_EXPOSURE * 10:.0f}"
    analysed: list[str | Path] = ["systemd-analyze", "security", "--no-pager", "--offline=true", threshold, unit]
    rated = subprocess.run(analysed, capture_output=True, text=True, check=False)
    assert rated.returncode == 0, rated.stdout + rated.stderr


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    lines = re.sub(r"\\\n", " ", "\n".join(line for line in dockerfile.read_text().splitlines() if not line.startswith("#")))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines.splitlines()) if word]


def test_hadolint_has_nothing_to_say_of_the_image() -> None:
    linted = subprocess.run([BIN / "hadolint", DOCKERFILE], capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout) == (0, ""), linted.stderr


def test_the_image_runs_as_a_user_and_writes_in_its_volume_only(flags: set[str]) -> None:
    found = instructions(DOCKERFILE)
    of_image = dict(found[[word for word, _ in found].index("FROM", 1) :])
    assert of_image["USER"] == "1000"
    assert of_image["VOLUME"] == of_image["WORKDIR"] == "/var/lib/scribengin-agent"
    assert json.loads(of_image["ENTRYPOINT"])[-2:] == ["-m", "scribengin.agent"]
    called = re.search(r"docker run (.+?)\n# [A-Z]", DOCKERFILE.read_text(), re.DOTALL)
    assert called is not None
    given = called[1].replace("\\\n#", "").split()
    assert given[0] == "--read-only"
    assert {word for word in given[given.index("scribengin-agent") :] if word.startswith("--")} <= flags


def test_docker_sees_the_files_that_the_image_is_made_from() -> None:
    seen = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {name for word, rest in instructions(DOCKERFILE) if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]}
    assert copied <= seen
    assert all((ROOT / name).exists() for name in copied)


def maker() -> Any:
    spec = importlib.util.spec_from_file_location("agent_pyz", ROOT / ".ci/agent_pyz.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_one_file_says_which_python_it_is_for(tmp_path: Path) -> None:
    for name, version, status in (("own", tuple(sys.version_info[:2]), 0), ("other", (3, 99), 3)):
        program = tmp_path / f"{name}.py"
        program.write_text(maker().PREAMBLE.format(python=".".join(map(str, version)), version=version, machine="x86_64"))
        ended = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
        assert ended.returncode == status, ended.stderr
        assert ("start it with python3.99" in ended.stderr) == (status == 3)


def test_the_lock_of_agents_has_each_package_that_the_one_file_needs() -> None:
    lock = (ROOT / "requirements-agent.lock").read_text()
    locked = re.findall(r"^([\w-]+)==", lock, re.MULTILINE)
    project = maker().tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.match(r"[\w.-]+", need)[0].replace(".", "-") for need in maker().needs(project)}  # type: ignore[index]
    assert wanted == {*locked} == {"msgspec", "backports-zstd", "google-crc32c", "lz4"}
    assert len(re.findall(r"--hash=sha256:", lock)) >= len(locked)


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pyz")
    made = subprocess.run([sys.executable, ROOT / ".ci/agent_pyz.py", "--out", folder], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    file = Path(made.stdout.strip())
    assert re.fullmatch(r"scribengin-agent-[0-9.]+-py3[0-9]+-linux-x86_64\.pyz", file.name)
    return file


@pytest.fixture
def clean(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing helps: no variable of this checkout, a home without files."""
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": os.defpath}


@pytest.fixture
def interpreter() -> str:
    """The Python below this virtual environment, without its packages."""
    return str(Path(sys.executable).resolve())


def test_the_one_file_shows_its_help_from_anywhere(one_file: Path, clean: dict[str, str], interpreter: str, flags: set[str]) -> None:
    ended = subprocess.run([interpreter, "-I", one_file, "--help"], cwd="/", env=clean, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert set(re.findall(r"--[a-z][a-z-]+", ended.stdout)) == flags


def test_the_one_file_has_what_the_agent_needs_and_no_more(one_file: Path) -> None:
    files = [name.split("/")[1:] for name in zipfile.ZipFile(one_file).namelist() if name.startswith("site-packages/")]
    assert {file[0] for file in files if not file[0].endswith((".dist-info", ".lock"))} == {*ALONE}
    assert {file[1] for file in files if file[0] == "scribengin" and len(file) > 2} == {"agent", "core", "spec", "wal", "wire"}
    assert any(file[0].startswith("scribengin-") and file[-1] == "LICENSE" for file in files)


@pytest.fixture
def started(one_file: Path, clean: dict[str, str], interpreter: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """An agent whose gateway is away."""
    command: list[str | Path] = [
        interpreter,
        "-I",
        one_file,
        "--name",
        "web-1",
        "--gateway",
        "http://127.0.0.1:1",
        "--data",
        tmp_path / "data",
    ]
    with (tmp_path / "log").open("w") as log:
        agent = subprocess.Popen(command, cwd="/", env=clean, stderr=log, text=True)
    try:
        yield agent
    finally:
        agent.kill()
        agent.wait()


def test_the_one_file_runs_until_it_is_asked_to_end(started: subprocess.Popen[str], tmp_path: Path) -> None:
    until = time.monotonic() + LIMIT_S
    while "nothing is read until" not in (said := (tmp_path / "log").read_text()):
        assert started.poll() is None, said
        assert time.monotonic() < until, said
        time.sleep(0.05)
    assert "agent web-1 starts" in said
    assert (tmp_path / "data/agent.lock").exists()
    started.send_signal(signal.SIGTERM)
    assert started.wait(LIMIT_S) == 0
