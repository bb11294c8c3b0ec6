"""The user's modules: packed when a run starts, and imported from the archive by driver and executors without unpacking it.

The archive is a snapshot: an edit during the run takes effect at the next start.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import sys
import traceback
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.core import code_archive
from scribengin.core.errors import StepError
from scribengin.core.storage import put_if_absent
from scribengin.plan.code_files import code_files

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class UserCode:
    """An archive of a flow folder's `.py` files. `digest` is the digest of the archive."""

    archive: str
    digest: str

    def load(self, reference: str) -> Any:
        """The object that `module:name` refers to. Raises StepError, with the line of the user's code, if the import fails."""
        activate(self.archive)
        module_name, _, name = reference.partition(":")
        try:
            target: Any = importlib.import_module(module_name)
            for part in name.split("."):
                target = getattr(target, part)
        except (Exception, SystemExit) as error:  # a script without a `__main__` guard exits
            where = code_line(error)
            raise StepError(f"cannot load {reference}: {type(error).__name__}: {error}" + (f" ({where})" if where else "")) from error
        return target


def pack(folder: Path, state: Path) -> UserCode:
    """Archive the `.py` files under `folder` as `state/code/<digest>.zip`; the same files give the same archive. Modules that this process
    has loaded for other flows under the same names are unloaded, so that they are imported from the archive.

    Raises EnvironmentFault if the files are too large.
    """
    from scribengin.spec.load import forget_others  # imported here, since executors do not need it

    forget_others(folder.resolve())
    files = code_files(folder)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix(), (2020, 1, 1, 0, 0, 0)), path.read_bytes())
    data = packed.getvalue()
    digest = hashlib.sha256(data).hexdigest()[:16]
    place = state / code_archive.FOLDER / f"{digest}.zip"
    put_if_absent(place, data)
    return UserCode(str(place.resolve()), digest)


def activate(archive: str) -> None:
    """Put `archive` first on the Python path; modules of other archives are unloaded."""
    if sys.path and sys.path[0] == archive:
        return
    for path in [path for path in sys.path if code_archive.is_archive(path) and path != archive]:
        _leave(path)
    _forget(lambda file: code_archive.inside(file) is not None and not file.startswith(archive))
    if archive in sys.path:
        sys.path.remove(archive)
    sys.path.insert(0, archive)
    sys.path_importer_cache.pop(archive, None)  # a look-up before the archive existed may be cached


def deactivate_below(folder: Path) -> None:
    """Remove archives in a folder that is about to be deleted from the Python path: otherwise imports would fail there."""
    gone = tuple(path for path in sys.path if code_archive.is_archive(path) and Path(path).is_relative_to(folder.resolve()))
    for path in gone:
        _leave(path)
    _forget(lambda file: file.startswith(gone))


def _leave(archive: str) -> None:
    sys.path.remove(archive)
    sys.path_importer_cache.pop(archive, None)


def _forget(is_meant: Callable[[str], bool]) -> None:
    for name, module in list(sys.modules.items()):
        if is_meant(str(getattr(module, "__file__", "") or "")):
            del sys.modules[name]


def code_line(error: BaseException) -> str:
    """`steps.py:12`: the innermost line of the user's code in the traceback; empty if there is none."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)][::-1]
    for file, line in frames:
        if (inner := code_archive.inside(file)) is not None:
            return f"{inner}:{line}"
    for file, line in frames:
        if "/scribengin/" not in file and "/pyspark" not in file:
            return f"{Path(file).name}:{line}"
    return ""
