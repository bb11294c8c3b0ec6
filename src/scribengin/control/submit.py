"""A flow file as a submission: packed, checked, planned, its package in the store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from scribengin.control.admin import Submission, tiers_of, watched_of
from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem
from scribengin.local.prepare import prepare
from scribengin.packages.make import make_package

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scribengin.packages.store import PackageStore


def submission(path: Path, packages: PackageStore, state: Path) -> tuple[Submission, Sequence[Problem]]:
    """Pack the folder of a flow file with its code, and plan that flow; with the warnings. Relative paths of its data start where the file
    lies now.

    Raises InputError with every problem of every flow in the folder.
    """
    made = make_package(path.parent, os.environ)
    packed = next((flow for flow in made.package.manifest.flows if flow.path == path.name), None)
    if packed is None:
        raise InputError([Problem("flow-missing", Place(str(path)), "this is no flow file", "name one that has sources or sinks")])
    packages.put([made.package.data], made.package.id)
    base = path.parent.resolve()
    prepared = prepare(packages.get(made.package.id) / packed.path, state=state, base=base)
    watched = watched_of(prepared.plan.flow)
    return Submission(prepared.name, made.package.id, packed.path, str(base), tiers_of(prepared.plan), watched), made.warnings
