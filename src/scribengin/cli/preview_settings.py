"""What `preview` and `run --watch` are to look at, from their command lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.cli.settings import read_settings, run_settings
from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.local.preview_contract import PreviewSettings

_SAMPLE = 20
"""records of each source by default"""


def preview_settings(
    *, at: str | None = None, rows: int = 20, sample: int | None = None, files: Sequence[str] = (), flags: Mapping[str, Any]
) -> PreviewSettings:
    """`files` are `[SOURCE=]FILE`; `flags` those of system settings. Raises InputError for what settings say wrongly."""
    from scribengin.local.preview_contract import PreviewSettings

    system = run_settings(read_settings(flags))
    given: dict[str, Path] = {}
    for source, file in map(_stand_in, files):
        if source in given:
            what = f'for source "{source}"' if source else "that name no source"
            raise InputError([Problem("preview-source", Place("--from"), f"two files {what}: {given[source]} and {file}", "name one")])
        given[source] = file
    return PreviewSettings(rows, sample or max(rows, _SAMPLE), at, given, system.state, system.memory, system.spark_conf)


def _stand_in(text: str) -> tuple[str, Path]:
    """(source, file); a file whose name has a `=` is meant where it is there."""
    source, equals, file = text.partition("=")
    if equals and source.isidentifier() and not Path(text).exists():
        return source, Path(file).expanduser()
    return "", Path(text).expanduser()
