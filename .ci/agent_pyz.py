"""Makes one file that runs the agent with any CPython of a minor version, with nothing installed: `make agent-pyz`.

It has the packages of requirements-agent.lock, and of this checkout's wheel what an agent may import (the contract "agents are light" of
`make check`): a first start unpacks 200 files, and not 1,000.
`shiv` puts them together. At its first start the file unpacks itself into `$SHIV_ROOT`, by default `~/.shiv`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-agent.lock"
ENTRY = "scribengin.agent.process:main"
PLATFORMS = {"x86_64": "x86_64-manylinux_2_28", "aarch64": "aarch64-manylinux_2_28"}
"""machine → the oldest Linux for which packages are taken: glibc 2.28, of 2018"""
PREAMBLE = """\
import sys

fault = ""
if sys.version_info[:2] != {version} or sys.implementation.name != "cpython":
    fault = "it runs with {{}} {{}}.{{}}".format(sys.implementation.name, *sys.version_info)
else:
    try:
        import msgspec
    except ImportError as error:
        fault = "its packages cannot be loaded here: {{}}".format(error)
if fault:
    print("error: this file is for CPython {python} on Linux {machine} with glibc 2.28 or newer; " + fault
          + "; start it with python{python}, or make one that fits: make agent-pyz", file=sys.stderr)
    sys.exit(3)
"""
"""runs at each start before the agent; also in a Python that the packages do not fit"""
KEPT = ("agent", "wal", "wire", "core", "spec")
"""packages of Scribengin; `spec`, because `import scribengin` loads it. What is beside them is kept too"""
BASE = ("msgspec",)
"""what the agent imports of the base's dependencies"""


def main() -> int:
    """Make the file, and print its name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", help="minor version; default: %(default)s")
    parser.add_argument("--machine", default="x86_64", choices=sorted(PLATFORMS), help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder; default: dist")
    parser.add_argument("--needs", action="store_true", help="only print the requirements that requirements-agent.lock is made from")
    asked = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if asked.needs:
        print(*needs(project), sep="\n")
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    made = asked.out / f"scribengin-agent-{project['version']}-py{asked.python.replace('.', '')}-linux-{asked.machine}.pyz"
    with tempfile.TemporaryDirectory(prefix="scribengin-agent-") as folder:
        site = Path(folder, "site")
        # --system-certs: the machine's own certificates, as pip and curl take them there
        install = (
            sys.executable,
            "-m",
            "uv",
            "--quiet",
            "--system-certs",
            "pip",
            "install",
            "--only-binary",
            ":all:",
            "--target",
            str(site),
        )
        fits = ("--python-version", asked.python, "--python-platform", PLATFORMS[asked.machine])
        _do(*install, *fits, "--require-hashes", "--requirements", str(LOCK))
        _do(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed_wheel:  # without what an installer notes of its moment, so that a commit gives the same file
            packed_wheel.extractall(site, [name for name in packed_wheel.namelist() if _is_kept(name)])
        preamble = Path(folder, "preamble.py")
        version = tuple(map(int, asked.python.split(".")))
        preamble.write_text(PREAMBLE.format(python=asked.python, version=version, machine=asked.machine))
        preamble.chmod(0o755)
        packed = ("--site-packages", str(site), "--entry-point", ENTRY, "--python", f"/usr/bin/env python{asked.python}")
        _do(
            sys.executable, "-m", "shiv", *packed, "--compressed", "--reproducible", "--preamble", str(preamble), "--output-file", str(made)
        )
    print(made)
    return 0


def needs(project: dict[str, object]) -> list[str]:
    """The requirements of the extras of agents, and those of the base that an agent imports."""
    extras, base = project["optional-dependencies"], project["dependencies"]
    assert isinstance(extras, dict)
    assert isinstance(base, list)
    return [
        *(need for need in base if need.startswith(BASE)),
        *(need for extra in ("agent", "lz4") for need in extras[extra] if not need.startswith("scribengin")),
    ]


def _is_kept(name: str) -> bool:
    package, *rest = name.split("/")
    return package != "scribengin" or len(rest) == 1 or rest[0] in KEPT


def _do(*command: str) -> None:
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"agent-pyz: {' '.join(command)} ended with {ended.returncode}: {(ended.stderr or ended.stdout)[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())
