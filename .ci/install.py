"""Does what we publish install and run? `make test-install`: a wheel in empty environments, as people have them.

Without extras; with the extra of agents, which may take so much room and no more; with all at the versions of requirements.lock; at the
lowest versions that pyproject.toml allows, where one of its direct needs is named; and with the newest packages on the newest Python that
PySpark supports. Each in an environment of its own, outside this folder, so that nothing of the checkout helps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scribengin.core.cache import cache_folder

ROOT = Path(__file__).parents[1]
OLDEST = "3.11"
NEWEST_FIRST = ("3.14", "3.13", "3.12")
"""those that PySpark 4.2 and 4.3 support beside the oldest"""
LIMIT_S = 900.0
"""of one command; `.ci/run` has the tests beside it"""
AGENT_MB = 60
"""the most that `scribengin[agent]` and all that it brings may take, compiled as pip does it"""
THIN_LACKS = ("numpy", "pyspark", "pyarrow", "kazoo", "fastapi", "pandas", "duckdb")
NEVER = ("pandas", "duckdb", "orjson", "zstandard", "sqlglotc")
"""packages that no flow of files may need"""


class Failed(Exception):
    """An install that does not do what we promise."""


def main() -> int:
    """Try each install, say what came out, and leave with 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", choices=["thin", "agent", "locked", "lowest", "newest"], help="this one, and no other that is not named"
    )
    only = parser.parse_args().only
    failed = []
    with tempfile.TemporaryDirectory(prefix="scribengin-install-") as folder:
        place = Path(folder)
        wheel = _wheel(place)
        for name, attempt in (("thin", _thin), ("agent", _agent), ("locked", _locked), ("lowest", _lowest), ("newest", _newest)):
            if only is not None and name not in only:
                continue
            began = time.monotonic()
            (place / name).mkdir()
            try:
                said = attempt(place / name, wheel)
            except Failed as error:
                failed.append(name)
                print(f"test-install: {name} FAILED: {error}", flush=True)
            else:
                print(f"test-install: {name} ok in {time.monotonic() - began:.0f} s: {said}", flush=True)
            shutil.rmtree(place / name)
    _uv("cache", "prune", "--ci")  # uv unpacks PySpark's sources anew in each run, a gigabyte, and leaves them
    return 1 if failed else 0


def _thin(place: Path, wheel: Path) -> str:
    python = _environment(place, _python(OLDEST), str(wheel))
    _lacks(python, THIN_LACKS)
    folder = _example(place, python)
    for command in ("validate", "plan", "fmt"):
        _scribengin(python, folder, command, "flow.yaml")
    ended = _scribengin(python, folder, "run", "flow.yaml", "--once", expected=3)
    if "pip install 'scribengin[spark]'" not in ended.stderr:
        raise Failed(f"run does not name its extra: {ended.stderr}")
    return f"Python {OLDEST}, no extra: validates, plans, formats; run names the extra it lacks"


def _agent(place: Path, wheel: Path) -> str:
    python = _environment(place, _python(OLDEST), "--compile-bytecode", f"scribengin[agent] @ {wheel.as_uri()}")
    _lacks(python, THIN_LACKS)
    installed = Path(_do([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).stdout.strip())
    # bytes of files, bytecode too: the blocks of a disk differ between file systems, and take a sixth more here
    size_mb = sum(file.lstat().st_size for file in installed.rglob("*") if file.is_file()) / 10**6
    if size_mb > AGENT_MB:
        raise Failed(f"scribengin[agent] takes {size_mb:.1f} MB installed; expected at most {AGENT_MB} MB")
    _do([python, "-m", "scribengin.agent", "--help"], cwd=place)
    return f"Python {OLDEST}, the extra of agents: {size_mb:.1f} MB installed of {AGENT_MB} MB; the agent starts"


def _locked(place: Path, wheel: Path) -> str:
    python = _environment(place, _python(OLDEST), "--require-hashes", "-r", str(ROOT / "requirements.lock"))
    _uv("pip", "install", "--python", python, "--no-deps", str(wheel))
    return f"Python {OLDEST}, requirements.lock: {_runs(place, python)}"


def _lowest(place: Path, wheel: Path) -> str:
    compiled = ["pip", "compile", "--resolution", "lowest-direct", "--python-version", OLDEST, str(ROOT / "pyproject.toml")]
    _uv(*compiled, "--all-extras", "-o", str(place / "every-extra.txt"))  # that there are such versions, also of the clients of stores
    _uv(*compiled, "--extra", "all", "-o", str(place / "lowest.txt"))
    python = _environment(place, _python(OLDEST), "-r", str(place / "lowest.txt"))
    _uv("pip", "install", "--python", python, "--no-deps", str(wheel))
    return f"Python {OLDEST}, the lowest versions: {_runs(place, python)}"


def _newest(place: Path, wheel: Path) -> str:
    for version in NEWEST_FIRST:
        interpreter = _python_or_none(version)
        if interpreter is not None:
            python = _environment(place, interpreter, f"scribengin[all] @ {wheel.as_uri()}")
            return f"Python {version}, the newest versions: {_runs(place, python)}"
        print(f"test-install: NOT TRIED: PySpark supports Python {version}, which this machine does not have", flush=True)
    return f"NOT TRIED: no Python newer than {OLDEST} here"


def _runs(place: Path, python: str) -> str:
    """A small flow, checked and run. Raises Failed."""
    _lacks(python, NEVER)
    _with_java(python)
    folder = _example(place, python)
    _scribengin(python, folder, "validate", "flow.yaml")
    told = json.loads(_scribengin(python, folder, "run", "flow.yaml", "--once", "--json").stdout)
    versions = json.loads(_scribengin(python, folder, "version", "--json").stdout)["result"]
    (query,) = told["result"]["queries"]
    rows = query["rows"]
    if not rows["in"] or not rows["out"]:
        raise Failed(f"the run has counted {rows}")
    return f"PySpark {versions['pyspark']}, {rows['in']:,} rows in and {rows['out']:,} out, balanced"


def _example(place: Path, python: str) -> Path:
    _scribengin(python, place, "init", "shop")
    return place / "shop"


def _lacks(python: str, packages: tuple[str, ...]) -> None:
    """So that a package which came in by another one's need does not stand in for a promise. Raises Failed."""
    program = "import sys; from importlib.util import find_spec; print(*(name for name in sys.argv[1:] if find_spec(name)))"
    there = _do([python, "-c", program, *packages]).stdout.strip()
    if there:
        raise Failed(f"it brings {there}")


def _with_java(python: str) -> None:
    """The machine's own, else that of the extra `jre`. Raises Failed."""
    if _ended([python, "-m", "scribengin.core.java"]).returncode != 0:
        _uv("pip", "install", "--python", python, "--require-hashes", "-r", str(ROOT / "requirements-jre.lock"))


def _environment(place: Path, interpreter: str, *needs: str) -> str:
    """A new environment with `needs`; its Python."""
    _uv("venv", "--python", interpreter, str(place / "environment"))
    python = str(place / "environment/bin/python")
    _uv("pip", "install", "--python", python, *needs)
    return python


def _wheel(place: Path) -> Path:
    _do([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(place / "dist")], cwd=ROOT)
    (wheel,) = (place / "dist").glob("*.whl")
    return wheel


def _python(version: str) -> str:
    found = _python_or_none(version)
    if found is None:
        raise Failed(f"Python {version} is not here; install it")
    return found


def _python_or_none(version: str) -> str | None:
    """On the PATH, or one of pyenv's, of which only those chosen are on the PATH."""
    named = [Path(folder) / f"python{version}" for folder in os.get_exec_path()]
    if shutil.which("pyenv"):
        named += Path(_do(["pyenv", "root"]).stdout.strip()).glob(f"versions/{version}.*/bin/python")
    for python in named:
        if python.exists() and _ended([str(python), "-c", "import ssl, venv, zlib"]).returncode == 0:
            return str(python)
    return None


def _scribengin(python: str, folder: Path, *arguments: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
    return _do([str(Path(python).with_name("scribengin")), *arguments], cwd=folder, expected=expected)


def _uv(*arguments: str) -> None:
    # --system-certs: the machine's own certificates, as pip and curl take them there
    _do([sys.executable, "-m", "uv", "--quiet", "--system-certs", "--no-python-downloads", *arguments])


def _do(command: list[str], cwd: Path | None = None, expected: int = 0) -> subprocess.CompletedProcess[str]:
    ended = _ended(command, cwd)
    if ended.returncode != expected:
        raise Failed(f"{' '.join(command)} ended with {ended.returncode}, not {expected}: {(ended.stderr or ended.stdout)[-2000:]}")
    return ended


def _ended(command: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    # what is set for the checkout's own environment must not help, nor the folder that the command is called in
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SPARK_HOME"}}
    clean["UV_CACHE_DIR"] = str(cache_folder() / "uv")  # one that may be pruned: a person's own is not ours
    clean["SCRIBENGIN_CLASS_ARCHIVE"] = "no"  # else a run leaves a process behind, which makes one out of an environment that is deleted
    try:
        return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(command)} has not ended in {LIMIT_S:.0f} s") from error


if __name__ == "__main__":
    sys.exit(main())
