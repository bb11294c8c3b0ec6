"""The client library behind one door, and its errors in our words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.errors import EnvironmentFault, SinkError, Unreachable

if TYPE_CHECKING:
    from scribengin.core.errors import ScribenginError

_LASTING = (
    (("No space left", "Disk quota", "File too large"), "make room there, and run it again", "delta-room"),
    (
        ("Permission denied", "Read-only file system", "Operation not permitted"),
        "give this user the right to read and write there, or name another folder",
        "delta-rights",
    ),
    (("Not a directory", "File exists"), "name another folder: a file stands on the way to it", "delta-place"),
)
"""What the errors of a folder say, what is to be done, and its code."""


def client() -> Any:
    """The module `deltalake`. Raises EnvironmentFault where it is not installed."""
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ImportError as error:
        raise EnvironmentFault(
            f"type: delta needs the package deltalake: {error}",
            remedy="install it: pip install 'scribengin[delta]'",
            code="delta-client",
        ) from error
    return deltalake


def fault_of_folder(node: str, place: str, error: Exception, what: str) -> ScribenginError:
    """An error of the client at a folder, in our words. `what` was tried when it came: "cannot be written"."""
    text = " ".join(str(error).split())
    said = f'sink "{node}": the table {place} {what}: {text}'
    for words, remedy, code in _LASTING:
        if any(each in text for each in words):
            return EnvironmentFault(said, remedy=remedy, code=code, node=node)
    if isinstance(error, OSError):
        return Unreachable(
            said,
            remedy="look whether the store is there; a flow that runs tries again by itself",
            code="delta-away",
            node=node,
        )
    return SinkError(said, remedy="correct the table or the flow", code="delta", node=node)
