"""What a person is told of a growing file that was edited. Alone, so that what shows it loads no reader."""

from __future__ import annotations


def rewritten_text(file: str) -> str:
    """What it means that a file was written again, and what to do.

    Args:
        file: Its path.
    """
    return (
        f"{file} was written again, not appended to: it is read from its start, and rows that it held before and still holds come "
        "again; put new records into a new file, or append lines to this one"
    )
