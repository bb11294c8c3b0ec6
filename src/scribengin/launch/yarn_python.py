"""A Python for workers in YARN that is an archive: it is read here, and is in HDFS once for all workers that use it.

The archive is stored under its SHA-256, beside a mark of each process that uses it, whose time shows when that was. It is deleted a day
after its last use if no live application has its tag. Its own time never changes: YARN refuses a file that is newer than the application
which names it.
"""

from __future__ import annotations

import re
import tarfile
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest, sha256
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING
from uuid import uuid4

from scribengin.core.errors import EnvironmentFault, ScribenginError

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.connectors.hdfs.path import HdfsPath
    from scribengin.launch.yarn_cluster import ResourceManagers

CODE = "yarn-python-archive"
LINK = "python"
"""the name of the unpacked archive in the folder of a container"""
FOLDER = ".scribengin"
"""the folder in a user's HDFS home"""
UNUSED_S = 86_400.0
"""seconds after the last use in which an archive is never deleted"""
PACK = "pack a Python that can be moved, with scribengin[spark] in it: see docs/yarn.md"
_RENEWED_S = 600.0
_CLEANED_S = 3600.0
_OLDEST_MINOR = 11
_CHUNK = 2**22
_SUFFIXES = (".tar.gz", ".tgz")
_PROGRAM = re.compile(r"(?P<root>(?:[^/]+/)?)bin/python3?")
_MODULE = re.compile(
    r"(?P<root>(?:[^/]+/)?)(?P<site>lib/python3\.(?P<minor>\d+)/site-packages)/(?P<name>pyspark|scribengin)"
    r"(?P<rest>/__init__\.py|/jars/[^/]+\.jar|-(?P<version>[^/]+)\.dist-info/METADATA)"
)
_STORED = re.compile(r"(?P<digest>[0-9a-f]{64})\.(?:tar\.gz|(?P<mark>[0-9a-f]{32})\.used)")
_LINKS = 10


@dataclass(frozen=True, slots=True)
class PythonArchive:
    """An archive with a Python, as this machine has it.

    Attributes:
        path: the file.
        digest: its SHA-256.
        size: its bytes.
        program: its Python, relative to the folder in which it is unpacked: `bin/python`.
        packages: the folder of its packages, likewise: `lib/python3.12/site-packages`.
        minor: the minor version of its Python: 12.
        target: the Python of the hosts to which its own is only a link, as in an archive of a venv; empty if it has one itself.
    """

    path: Path
    digest: str
    size: int
    program: str
    packages: str
    minor: int
    target: str = ""

    @property
    def python(self) -> str:
        """The path of its Python in a container."""
        return f"./{LINK}/{self.program}"

    @property
    def spark_home(self) -> str:
        """The folder of its PySpark in a container, as YARN expands it."""
        return f"{{{{PWD}}}}/{LINK}/{self.packages}/pyspark"

    @property
    def name(self) -> str:
        """The name of its file in HDFS."""
        return f"{self.digest}.tar.gz"

    @property
    def tag(self) -> str:
        """The tag of the applications that use it."""
        return _tag(self.digest)

    @classmethod
    def read(cls, path: Path) -> PythonArchive:
        """Read an archive: it must have a Python, and the PySpark and Scribengin of this machine. Takes some seconds.

        Raises:
            EnvironmentFault: workers could not run with it.
        """
        if not path.name.endswith(_SUFFIXES):
            raise _fault(f"{path} is not a .tar.gz", "pack it as .tar.gz: a .zip loses links and the right to execute")
        try:
            with path.open("rb") as file:
                digest = file_digest(file, "sha256").hexdigest()
            with tarfile.open(path, "r:gz") as archive:
                members = {member.name.removeprefix("./"): member.linkname if member.issym() else None for member in archive}
        except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
            raise _fault(f"{path} cannot be read: {error}", "name a complete .tar.gz that this user may read") from error
        programs = [found for name in members if (found := _PROGRAM.fullmatch(name))]
        if not programs:
            raise _fault(f"{path} has no bin/python", PACK)
        root, program = min((found["root"], found[0]) for found in programs)
        target = _target(path, members, program)
        modules = [found for name in members if (found := _MODULE.fullmatch(name)) and found["root"] == root]
        _check_packages(path, modules)
        packages, minor = f"{root}{modules[0]['site']}", int(modules[0]["minor"])
        return cls(path, digest, path.stat().st_size, program, packages, minor, target)


def _target(path: Path, members: dict[str, str | None], program: str) -> str:
    """The absolute path to which a program of the archive links; empty if it is in the archive. Raises EnvironmentFault: it is nowhere."""
    name = program
    for _ in range(_LINKS):
        link = members.get(name)
        if link is None:
            break
        if link.startswith("/"):
            return link
        parts: list[str] = []
        for part in f"{name.rpartition('/')[0]}/{link}".split("/"):
            if part == "..":
                parts = parts[:-1]
            elif part not in ("", "."):
                parts.append(part)
        name = "/".join(parts)
    if name not in members or members[name] is not None:
        raise _fault(f"{path}: {program} is a link to {name}, which is not in the archive", PACK)
    return ""


def _check_packages(path: Path, modules: list[re.Match[str]]) -> None:
    """Raise EnvironmentFault unless PySpark and Scribengin are there, in the versions of this machine."""
    for name in ("pyspark", "scribengin"):
        mine = [each for each in modules if each["name"] == name]
        if not any(each["rest"] == "/__init__.py" for each in mine):
            raise _fault(f"{path} has no {name} in lib/python3.*/site-packages", f"install it there before packing: {_install(name)}")
        found = next((each["version"] for each in mine if each["version"]), None)
        with suppress(PackageNotFoundError):
            if found is not None and found != version(name):
                raise _fault(
                    f"{path} has {name} {found}, and this machine {version(name)}", f"install the same one there: {_install(name)}"
                )
    if not any(each["rest"].startswith("/jars/") for each in modules):
        raise _fault(f"{path} has a pyspark without jars", f"install PySpark as it is on PyPI before packing: {_install('pyspark')}")
    minor = int(modules[0]["minor"])
    if minor < _OLDEST_MINOR:
        raise _fault(f"{path} has Python 3.{minor}", f"Scribengin needs Python 3.{_OLDEST_MINOR} or newer")


def _install(name: str) -> str:
    wanted = "scribengin[spark]" if name == "scribengin" else name
    with suppress(PackageNotFoundError):
        return f"pip install '{wanted}=={version(name)}'"
    return f"pip install '{wanted}'"


class PythonStore:
    """The archives of this user in the HDFS of a cluster."""

    def __init__(self, file_system: str, user: str, web: tuple[str, ...]) -> None:
        """Prepare it; nothing is asked yet.

        Args:
            file_system: the URL of the HDFS, `fs.defaultFS`.
            user: the user whose home has the archives.
            web: the addresses of the cluster's ResourceManagers. Two clusters with one HDFS do not know each other's applications, so that
                each has a folder of its own.

        Raises:
            EnvironmentFault: it is not an HDFS, or its client is not installed.
        """
        from scribengin.connectors.hdfs.path import HdfsPath

        if not file_system.startswith("hdfs://"):
            raise _fault(
                f"--yarn-python-archive needs an HDFS, and fs.defaultFS is {file_system or 'not set'}",
                "set fs.defaultFS in core-site.xml; or install Python on all hosts, and name it with --yarn-python",
            )
        cluster = sha256(" ".join(sorted(web)).encode()).hexdigest()[:8]
        try:
            self._folder = HdfsPath.of(f"{file_system.rstrip('/')}/user/{user}/{FOLDER}/python-{cluster}")
        except ValueError as error:
            raise _fault(f"fs.defaultFS: {error}", "correct fs.defaultFS in core-site.xml") from error
        self._id = uuid4().hex
        self._renewed_s: dict[str, float] = {}
        self._cleaned_s = 0.0

    @property
    def folder(self) -> HdfsPath:
        """The folder of the archives."""
        return self._folder

    def put(self, archive: PythonArchive) -> tuple[HdfsPath, bool]:
        """Make an archive available, and note its use. Any number of processes may do that at once.

        Returns:
            Its path, and whether this call has uploaded it.

        Raises:
            EnvironmentFault: HDFS does not answer, or refuses it.
        """
        place = self._folder / archive.name
        try:
            self._renew(archive.digest)  # before it is looked for: from now on nobody deletes it
            seen = place.probe()
            if seen is not None and seen.size == archive.size:
                return place, False
            self._upload(archive, place)
        except (ScribenginError, OSError) as error:
            why = error.message if isinstance(error, ScribenginError) else str(error)
            remedy = error.remedy if isinstance(error, ScribenginError) else f"check {archive.path}"
            raise _fault(f"the Python archive {archive.path} cannot be stored in HDFS: {why}", remedy) from error
        return place, True

    def clean(self, managers: ResourceManagers, keep: str) -> list[str]:
        """Delete the archives that nothing uses, and what killed uploads have left. At most once an hour, unless HDFS or YARN do not
        answer.

        Args:
            managers: the cluster, which knows the live applications.
            keep: the digest of an archive for which `put` was called.

        Returns:
            The names of the deleted files.
        """
        if self._cleaned_s and time.monotonic() - self._cleaned_s < _CLEANED_S:
            return []
        removed: list[str] = []
        with suppress(ScribenginError):  # the next time
            managers.check_active()  # one that recovers does not know its applications yet
            entries = self._folder.entries()
            now_s = entries[self._mark(keep)].modified_s  # by the clock of HDFS
            stored = {name: _STORED.fullmatch(name) for name in entries}
            old = {name for name, seen in entries.items() if seen.modified_s < now_s - UNUSED_S}
            used = {found["digest"] for name, found in stored.items() if found is not None and name not in old}
            for name in sorted(old):
                found = stored[name]
                kept = found is not None and not found["mark"] and (found["digest"] in used or _is_live(managers, found["digest"]))
                if not kept and (self._folder / name).remove(all_in_it=False):
                    removed.append(name)
            self._cleaned_s = time.monotonic()
        return removed

    # --- pieces ---

    def _mark(self, digest: str) -> str:
        """The name of the mark of this process. Several that write one file at once would disturb each other."""
        return f"{digest}.{self._id}.used"

    def _renew(self, digest: str) -> None:
        """Note that an archive is used now."""
        before_s = self._renewed_s.get(digest)
        if before_s is not None and time.monotonic() - before_s < _RENEWED_S:
            return
        (self._folder / self._mark(digest)).touch_over()
        self._renewed_s[digest] = time.monotonic()

    def _upload(self, archive: PythonArchive, place: HdfsPath) -> None:
        """Write the file under another name, and rename it. Raises ScribenginError, OSError."""
        draft = self._folder / f".{archive.name}.{uuid4().hex}"
        try:
            file, digest = draft.new(), sha256()
            with archive.path.open("rb") as content:
                while data := content.read(_CHUNK):
                    file.write(data)
                    digest.update(data)
            file.close()
            if digest.hexdigest() != archive.digest:
                raise _fault("it has changed since it was read", "start the node again")
            if (seen := place.probe()) is not None and seen.size != archive.size:
                place.remove(all_in_it=False)
            try:
                draft.move(place, over=False)
            except (ScribenginError, FileNotFoundError):  # another launcher was faster, or an answer was lost
                seen = place.probe()
                if seen is None or seen.size != archive.size:
                    raise
        finally:
            with suppress(ScribenginError, OSError):
                draft.remove(all_in_it=False)


def _is_live(managers: ResourceManagers, digest: str) -> bool:
    """True if a live application uses an archive."""
    return any(each.is_live for each in managers.tagged(_tag(digest)))


def _tag(digest: str) -> str:
    return f"scribengin-python-{digest[:16]}"


def _fault(message: str, remedy: str) -> EnvironmentFault:
    return EnvironmentFault(message, remedy=remedy, code=CODE)
