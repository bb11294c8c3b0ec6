"""The folder for files that can be made or fetched again, shared by all projects of a user."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The cache folder: SCRIBENGIN_CACHE, else `scribengin` in XDG_CACHE_HOME or in the platform's folder for caches. Does not
    create it."""
    if given := os.environ.get("SCRIBENGIN_CACHE"):
        return Path(given).expanduser().absolute()
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given, "scribengin")
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "scribengin"
