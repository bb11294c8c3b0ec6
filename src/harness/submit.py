"""Converts flow files, folders and packages to submissions: packed, checked and planned, with their packages in the store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.control.submission import submission_of
from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem
from scribengin.local.prepare import prepare
from scribengin.packages.make import make_package
from scribengin.packages.package import SUFFIX
from scribengin.packages.store import read_package

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.control.submission import Submission
    from scribengin.packages.package import Package
    from scribengin.packages.store import PackageStore


def submission(path: Path, packages: PackageStore, state: Path) -> tuple[Submission, Sequence[Problem]]:
    """The submission of one flow file, and its warnings; see `submissions`."""
    found, warnings = submissions([path], packages, state)
    return found[0], warnings


def submissions(
    places: Sequence[Path], packages: PackageStore, state: Path, *, base: Path | None = None
) -> tuple[list[Submission], list[Problem]]:
    """Submit flow files, folders (all flows in them) and packages (all of their flows); returns the submissions and the warnings.

    Args:
        places: The files, folders and packages. The folder of a file is packed with its code.
        packages: The store that receives the packages.
        state: The state folder of the flows.
        base: The folder to which paths of data are relative. None: the folder of the files; for a package, the working folder.

    Raises:
        InputError: with every problem of every submitted flow. Another flow next to a submitted file that has errors is left out, with a
            warning.
        Refused: for a file that is not a package.
    """
    found: list[Submission] = []
    told: list[Problem] = []
    made: dict[tuple[Path, str | None], Package] = {}
    for place in places:
        try:
            if place.suffix == SUFFIX:
                package, chosen, start = read_package(place), None, Path.cwd()
            else:
                chosen, start = (None, place) if place.is_dir() else (place.name, place.parent)
                if (start.resolve(), chosen) not in made:
                    new = make_package(start, os.environ, asked=chosen)
                    told += new.warnings
                    made[start.resolve(), chosen] = new.package
                package = made[start.resolve(), chosen]
            packages.put([package.data], package.id)
            found += _of_package(package, chosen, place, (base or start).resolve(), packages, state)
        except InputError as error:
            told += error.problems
    told = list(dict.fromkeys(told))
    if any(problem.severity == "error" for problem in told):
        raise InputError(told)
    return found, told


def _of_package(package: Package, chosen: str | None, place: Path, base: Path, packages: PackageStore, state: Path) -> list[Submission]:
    """The flows of a package, or only the one in the file `chosen`. Raises InputError with the problems of all of them."""
    packed = [flow for flow in package.manifest.flows if chosen in (None, flow.path)]
    if not packed:
        raise InputError([Problem("flow-missing", Place(str(place)), "this is not a flow file", "name a file that has sources or sinks")])
    found, problems = [], list[Problem]()
    for flow in packed:
        try:
            prepared = prepare(packages.get(package.id) / flow.path, state=state, base=base)
        except InputError as error:
            problems += error.problems
            continue
        found.append(submission_of(prepared.plan, package.id, flow.path, str(base)))
    if problems:
        raise InputError(problems)
    return found
