"""Settings for a Java that starts faster, because the campaign starts it thousands of times: no second compiler, and an archive of Spark's
classes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from scribengin.core.java import FIRST_COMPILER_ONLY

if TYPE_CHECKING:
    from pathlib import Path

_BRIEF = " ".join([*FIRST_COMPILER_ONLY, "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto"])
_ARCHIVE = "-XX:SharedArchiveFile="


def java_settings(archive: Path | None = None) -> dict[str, str]:
    """The environment variables for Spark's Java, and for the small one that starts it. Java ignores an archive that does not match;
    without `archive`, one that the environment names already is kept, as in tests."""
    named = f"{_ARCHIVE}{archive}" if archive is not None else _named_archive()
    return {"SPARK_SUBMIT_OPTS": f"{_BRIEF} {named}".strip(), "SPARK_LAUNCHER_OPTS": _BRIEF}


def _named_archive() -> str:
    options = os.environ.get("SPARK_SUBMIT_OPTS", "").split()
    return next((option for option in options if option.startswith(_ARCHIVE)), "")
