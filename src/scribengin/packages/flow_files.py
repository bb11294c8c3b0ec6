"""Finds the flow files of a folder by their text: nothing is executed, and a flow with errors counts too."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = re.compile(r"^[\"']?(?:sources|sinks)[\"']?\s*:", re.MULTILINE)
_BRACES = re.compile(r"(?:#[^\n]*\n|\s)*\{(?:.*[\s,{])?[\"']?(?:sources|sinks)[\"']?\s*:", re.DOTALL)


def flow_files(folder: Path) -> tuple[list[Path], list[Problem]]:
    """The flow files directly in `folder`, by name; and a Problem for each possible flow file that cannot be read.

    A `.yaml` or `.yml` file is one that has `sources` or `sinks` at its top; a `.py` file that imports `scribengin` and sets
    `flow`, or `app`, at its top.
    """
    if not folder.is_dir():
        found = "this is a file, not a folder" if folder.exists() else "the folder does not exist"
        return [], [Problem("package-folder", Place(str(folder)), found, "pass the folder that contains the flow files")]
    flows, problems = [], []
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".yaml", ".yml", ".py") or path.name.startswith(".") or path.is_dir():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            message = f"the file cannot be read: {error.strerror}"
            problems.append(Problem("package-file", Place(str(path)), message, "make it readable, or remove it"))
            continue
        except UnicodeDecodeError:  # validate says where, of a flow; modules may be written in other ways
            if path.suffix != ".py":
                flows.append(path)
            continue
        if _makes_flow(text) if path.suffix == ".py" else _BLOCK.search(text) or _BRACES.match(text):
            flows.append(path)
    return flows, problems


def _makes_flow(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # of a module the steps' checks say it; of a flow its text shows that it is one
        return bool(
            re.search(r"^(?:flow|app)\s*=", text, re.MULTILINE) and re.search(r"^(?:from|import)\s+scribengin\b", text, re.MULTILINE)
        )
    sets = imports = False
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=targets):
                sets |= any(isinstance(target, ast.Name) and target.id in ("flow", "app") for target in targets)
            case ast.AnnAssign(target=ast.Name(id="flow" | "app")):
                sets = True
            case ast.Import(names=names):
                imports |= any(alias.name == "scribengin" for alias in names)
            case ast.ImportFrom(module="scribengin"):
                imports = True
    return sets and imports
