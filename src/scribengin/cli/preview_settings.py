"""The settings of `preview` and `run --watch`, from their command lines."""

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
"""default number of records of each source"""


def preview_settings(
    *, at: str | None = None, rows: int = 20, sample: int | None = None, files: Sequence[str] = (), flags: Mapping[str, Any]
) -> PreviewSettings:
    """Build the settings of a preview from options. Raises InputError for invalid system settings or two files for the same source.

    Args:
        at: the node to show; None shows all
        rows: the number of rows to show of each node
        sample: the number of records to read of each source; None: 20, or `rows` if that is larger
        files: `[SOURCE=]FILE`, files to read in place of sources
        flags: flags of system settings
    """
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
    """Split [SOURCE=]FILE into source and file. A text that names an existing file is a file, even if it contains a `=`."""
    source, equals, file = text.partition("=")
    if equals and source.isidentifier() and not Path(text).exists():
        return source, Path(file).expanduser()
    return "", Path(text).expanduser()
