"""The locations of the archives of users' code: `<state>/code/<digest>.zip`, and Spark's copies of these. A process that runs such code has
the archive on its Python path."""

from __future__ import annotations

from pathlib import Path

FOLDER = "code"
"""the name of the folder in a flow's state"""
_COPIES = "userFiles-"
"""the prefix of the name of the folder into which Spark copies what `addPyFile` gives it, and which it keeps on the Python path"""
_SUFFIX = ".zip"


def is_archive(path: str) -> bool:
    """True if this entry of a Python path is the code of a flow, which other flows do not use."""
    folder = Path(path).parent.name
    return path.endswith(_SUFFIX) and (folder == FOLDER or folder.startswith(_COPIES))


def inside(file: str) -> str | None:
    """The path of a file inside such an archive, such as `lib/rules.py`; None for every other file."""
    archive, found, inner = file.partition(f"{_SUFFIX}/")
    return inner if found and is_archive(archive + _SUFFIX) else None
