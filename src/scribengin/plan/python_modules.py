"""Finds modules that a flow names: in the flow file's folder, then on the Python path; never in the working directory, nor in folders that
other flows have added to this process."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path

from scribengin.core import code_archive
from scribengin.spec.load import executed_in


def find_module(module: str, folder: Path) -> Path | None:
    """The source file of a module, without importing any part of it; None if there is none."""
    within = folder.joinpath(*module.split("."))
    for candidate in (within.with_suffix(".py"), within / "__init__.py"):
        if candidate.is_file():
            return candidate
    return _found(module, tuple(_python_path()))


def _python_path() -> list[str]:
    """The folders of modules that do not belong to a flow."""
    asked_for = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    left_out = executed_in() | {str(Path.cwd())}
    others = [part for part in sys.path if part and not code_archive.is_archive(part)]
    return [part for part in others if part in asked_for or str(Path(part).absolute()) not in left_out]


@lru_cache(maxsize=256)
def _found(module: str, on: tuple[str, ...]) -> Path | None:
    spec, path = None, list(on)
    parts = module.split(".")
    for depth in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: depth + 1]), path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    if spec is None or not spec.origin:
        return None
    file = Path(spec.origin)
    # of a module in an archive (zipimport) the archive stands for it: it has no file of its own that could be read
    return next((each for each in (file, *file.parents) if each.is_file()), file)
