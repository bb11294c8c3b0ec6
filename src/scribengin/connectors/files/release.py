"""Deletes an acknowledged file, or moves it to an archive. Idempotent: it may be interrupted at any point and repeated."""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
from pathlib import PurePath
from typing import TYPE_CHECKING
from uuid import uuid4

from scribengin.core.storage import make_folder, sync_folder

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.connectors.files.pieces import FilePiece


def release_file(root: Path, piece: FilePiece, archive: Path | None) -> str:
    """Delete a file, or move it to the same relative path below an archive. A file that does not exist counts as released.

    Args:
        root: The folder that the piece's path is relative to.
        piece: The whole file as one piece.
        archive: The archive; None: the file is deleted.

    Returns:
        Why the file is kept, in a sentence: its path, size or time differ from the recorded ones. Empty if it was released.

    Raises:
        OSError: The error of the file system.
    """
    path = root / piece.path
    try:
        status = path.stat()
    except FileNotFoundError:
        return ""
    if (status.st_size, status.st_mtime_ns) != (piece.size, piece.mtime_ns):
        return f"{path} is kept: it is not the file that was read, which had {piece.size:,} bytes; this one has {status.st_size:,}"
    try:
        if archive is not None:
            _move(path, archive / piece.path)
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
    except FileNotFoundError:  # the sink deleted it first, because of `keep`
        if path.exists():
            raise
    return ""


def _move(path: Path, target: Path) -> None:
    """Move the file to `target`, durably; if another file has that name, to the next free name."""
    make_folder(target.parent)
    target = _free(path, target)
    if target.exists():  # it was copied, and the copying process was killed
        return
    try:
        path.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        draft = target.with_name(f".{target.name}.{uuid4().hex}")
        try:
            shutil.copy2(path, draft)
            with draft.open("rb") as copied:
                os.fsync(copied.fileno())
            draft.rename(target)
        finally:
            draft.unlink(missing_ok=True)
    sync_folder(target.parent)


def _free(path: Path, target: Path) -> Path:
    """`target`, `target.1` and so on: the first name that is free, or whose file has the same bytes."""
    name, number = PurePath(target).name, 0
    while target.exists() and not filecmp.cmp(path, target, shallow=False):
        number += 1
        target = target.with_name(f"{name}.{number}")
    return target
