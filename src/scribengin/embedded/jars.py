"""The jars that are not part of PySpark: their list, their cache, and how they are fetched.

`jars.json` pins each by coordinate and SHA-256, for each version of PySpark; `python -m harness.pin_jars` writes it. Jars that the cache
lacks are fetched by the Ivy that is part of PySpark, with the Ivy settings of this machine; this code contains no address.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from scribengin.core.cache import cache_folder
from scribengin.core.errors import EnvironmentFault
from scribengin.core.java import find_java
from scribengin.core.storage import explained, make_folder, remove_tree, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

IVY_SETTINGS = "SCRIBENGIN_IVY_SETTINGS"
"""the variable with the path of an Ivy settings file, for machines that reach only a repository of their own"""

_FETCHED_WITHIN_S = 1800.0
_TYPES = ("jar", "bundle", "maven-plugin", "zip")


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar, or another file. `coordinate` is `group:artifact:version`, for a zip file `group:artifact:version@zip`; `sha256` is in hex."""

    coordinate: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The file's usual name, and its name in the cache: `artifact-version.jar`."""
        _, artifact, number = self.coordinate.split(":")
        number, _, kind = number.partition("@")
        return f"{artifact}-{number}.{kind or 'jar'}"


def set_names() -> list[str]:
    """The names of the sets of jars for the installed PySpark."""
    return list(_table())


def jars_of(name: str) -> list[Jar]:
    """The jars of a set, in the order of their coordinates. Raises KeyError for an unknown set."""
    return [Jar(coordinate, digest) for coordinate, digest in _table()[name]["jars"].items()]


def jars_folder() -> Path:
    """The cache's folder of jars, shared by all projects."""
    return cache_folder() / "jars"


def missing(name: str) -> list[Jar]:
    """The jars of a set that the cache lacks, or has with other content. Reads all of them: some 0.2 s for 50 MB."""
    folder = jars_folder()
    return [jar for jar in jars_of(name) if _digest(folder / jar.file_name) != jar.sha256]


def fetch(name: str, tell: Callable[[str], None] = lambda _line: None) -> list[Path]:
    """The files of a set, in the cache, each with the right content. Missing ones are fetched, which takes minutes.

    Any number of processes may fetch at the same time, different sets in parallel.

    Args:
        name: the set.
        tell: called with a message before anything is fetched.

    Raises:
        EnvironmentFault: files cannot be fetched; the message has the missing files and their folder.
    """
    folder = jars_folder()
    if missing(name):
        with _only_fetcher(folder, name):
            if lacking := missing(name):
                tell(f"fetching {len(lacking)} jars into {folder}")
                _fetch_into(folder, name, lacking)
    return [folder / jar.file_name for jar in jars_of(name)]


def pyspark_jars(*patterns: str) -> list[Path]:
    """The jars of PySpark whose names match these patterns. Raises EnvironmentFault if none matches one of them."""
    spec = find_spec("pyspark")
    folder = Path(spec.submodule_search_locations[0], "jars") if spec and spec.submodule_search_locations else Path("pyspark", "jars")
    found: list[Path] = []
    for pattern in patterns:
        matching = sorted(folder.glob(pattern))
        if not matching:
            raise EnvironmentFault(f"there is no {pattern} in {folder}", remedy="install PySpark again", code="jars-missing")
        found += matching
    return found


def run_ivy(module: str, pattern: str, scratch: Path) -> str:
    """Resolve an Ivy module and store its jars.

    Args:
        module: the module, as XML.
        pattern: Ivy's pattern for the files' paths.
        scratch: a folder for temporary files.

    Returns:
        Ivy's output, to be shown if a jar is missing.
    """
    asked = scratch / "ivy.xml"
    asked.write_text(module)
    settings = os.environ.get(IVY_SETTINGS)
    command: list[str | Path] = [find_java().home / "bin" / "java", "-Xmx256m", "-cp", *pyspark_jars("ivy-*.jar"), "org.apache.ivy.Main"]
    command += ["-settings", settings] if settings else []
    command += ["-ivy", asked, "-cache", scratch / "ivy", "-retrieve", pattern, "-types", *_TYPES, "-warn"]
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=_FETCHED_WITHIN_S)
    except subprocess.TimeoutExpired:
        return f"no answer within {_FETCHED_WITHIN_S:g} s"
    return ended.stdout


def ivy_module(coordinates: Sequence[str], *, with_dependencies: bool) -> str:
    """An Ivy module, as XML, that depends on these coordinates."""
    wanted = "default" if with_dependencies else "master"
    asked = []
    for coordinate in coordinates:
        plain, _, kind = coordinate.partition("@")
        group, artifact, number = map(quoteattr, plain.split(":"))
        transitive = str(with_dependencies).lower()
        file = f"<artifact name={artifact} type={quoteattr(kind)} ext={quoteattr(kind)}/>" if kind else ""
        asked.append(
            f'<dependency org={group} name={artifact} rev={number} transitive="{transitive}" conf="default->{wanted}">{file}</dependency>'
        )
    head = (
        '<ivy-module version="2.0"><info organisation="scribengin" module="jars"/><configurations><conf name="default"/></configurations>'
    )
    return f"{head}<dependencies>{''.join(asked)}</dependencies></ivy-module>"


def _fetch_into(folder: Path, name: str, lacking: Sequence[Jar]) -> None:
    scratch = folder / f".fetching-{name}"  # in the folder of the jars, so that a finished one only needs to be renamed
    remove_tree(scratch)
    make_folder(scratch)
    try:
        said = run_ivy(
            ivy_module([jar.coordinate for jar in lacking], with_dependencies=False), f"{scratch}/[artifact]-[revision].[ext]", scratch
        )
        failed = []
        for jar in lacking:
            digest = _digest(scratch / jar.file_name)
            if digest == jar.sha256:
                with explained(f"{folder / jar.file_name} cannot be written"):
                    (scratch / jar.file_name).replace(folder / jar.file_name)
            else:
                failed.append(f"{jar.file_name} (SHA-256 {jar.sha256}{f', came with {digest}' if digest else ''})")
    finally:
        remove_tree(scratch)
    if failed:
        raise _fault(folder, name, failed, said)


def _fault(folder: Path, name: str, failed: Sequence[str], said: str) -> EnvironmentFault:
    log = folder / f"fetch-{name}.log"
    replace(log, said.encode())
    reasons = [line.strip() for line in said.splitlines() if "xception" in line or "no answer" in line or ": not found" in line]
    reason = f" ({reasons[-1]})" if reasons else ""
    listed = "".join(f"\n  {jar}" for jar in failed)
    return EnvironmentFault(
        f"{len(failed)} jars of {name} could not be fetched{reason}:{listed}",
        remedy=(
            f"with a network run: scribengin dev-jars fetch {name}; without one, put these files into {folder}; "
            f"the output of Ivy is in {log}"
        ),
        code="jars-missing",
    )


@contextmanager
def _only_fetcher(folder: Path, name: str) -> Iterator[None]:
    """Hold a lock: other processes that need this set wait meanwhile, and then find the fetched files."""
    make_folder(folder)
    file = folder / f"lock-{name}"
    with explained(f"{file} cannot be written"), file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(path: Path) -> str:
    """The SHA-256 of a file; empty if it does not exist."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def _table() -> dict[str, Any]:
    try:
        installed = ".".join(version("pyspark").split(".")[:2])
    except PackageNotFoundError:
        installed = "none"
    table: dict[str, dict[str, Any]] = json.loads(files(__package__).joinpath("jars.json").read_text())
    if installed not in table:
        raise EnvironmentFault(
            f"no jars are known for PySpark {installed}; supported are {', '.join(table)}",
            remedy=f"pip install 'pyspark=={max(table)}.*'",
            code="jars-unknown",
        )
    return table[installed]
