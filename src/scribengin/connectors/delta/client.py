"""The only module that imports the client library, and its errors as Scribengin errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.errors import EnvironmentFault, SinkError, Unreachable

if TYPE_CHECKING:
    from scribengin.core.errors import ScribenginError

_LASTING = (
    (("No space left", "Disk quota", "File too large"), "free space there, then run the command again", "delta-room"),
    (
        ("Permission denied", "Read-only file system", "Operation not permitted"),
        "grant this user read and write access there, or choose another folder",
        "delta-rights",
    ),
    (("Not a directory", "File exists"), "choose another folder: a part of its path is a file", "delta-place"),
)
"""parts of error texts about a folder → the remedy and the code"""


def client() -> Any:
    """The module `deltalake`. Raises EnvironmentFault if it is not installed."""
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
    """An error of the client about a table in a folder, as a Scribengin error.

    Args:
        node: The id of the sink.
        place: The name of the place.
        error: The client's error.
        what: The action that failed, such as "cannot be written".
    """
    text = " ".join(str(error).split())
    said = f'sink "{node}": the table {place} {what}: {text}'
    for words, remedy, code in _LASTING:
        if any(each in text for each in words):
            return EnvironmentFault(said, remedy=remedy, code=code, node=node)
    if isinstance(error, OSError):
        return Unreachable(
            said,
            remedy="check that the store is available; a running flow retries automatically",
            code="delta-away",
            node=node,
        )
    return SinkError(said, remedy="correct the table or the flow", code="delta", node=node)
