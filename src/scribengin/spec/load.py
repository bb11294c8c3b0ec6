"""Loads a flow from its file: `.yaml` and `.yml` are parsed, `.py` is executed, or only compiled if no code may run."""

from __future__ import annotations

import ast
import importlib.util
import os
import shlex
import sys
import traceback
from typing import TYPE_CHECKING

from scribengin.core import code_archive
from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem
from scribengin.spec.call_sites import CallPlaces, data_in
from scribengin.spec.model import Flow
from scribengin.spec.parse import Parsed, parse_flow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import ModuleType

    from scribengin.core.options import NodeType


def load_flow(
    path: Path,
    *,
    source_types: Mapping[str, NodeType],
    sink_types: Mapping[str, NodeType],
    environment: Mapping[str, str],
    execute: bool = True,
    base: Path | None = None,
) -> Parsed:
    """Read a flow file. Never raises because of the file's content.

    A `.py` file is a module that sets `flow`, or `app`.

    Args:
        path: The file; problems have this path as it is given.
        source_types: The known types of sources.
        sink_types: The known types of sinks.
        environment: The values for `${env:…}`.
        execute: False (`validate`): a `.py` file is compiled and not executed; the flow is None, with a warning that only the syntax was
            checked.
        base: The folder that paths of data and secrets are relative to; None: the file's folder, which also contains its code.
    """
    file = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        place = Place(file, before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1)
        return _failed("flow-file-missing", place, "from here on, the flow file is not valid UTF-8 text", "save it as UTF-8")
    except OSError as error:
        remedy = "check the path: it is relative to the working directory"
        return _failed("flow-file-missing", Place(file), f"the flow file cannot be read: {error.strerror}", remedy)
    if path.suffix == ".py" and path.stem in sys.stdlib_module_names:
        remedy = f"give it another name, such as {path.stem}_flow.py"
        return _failed(
            "flow-file-python",
            Place(file),
            f'the module "{path.stem}" would hide the module of the same name in Python\'s standard library',
            remedy,
        )
    if path.suffix == ".py":
        return _execute(path, file, base) if execute else _look_at(text, file)
    own = path.resolve().parent
    folder, code = (own, None) if base is None else (base.resolve(), own)
    types = {"source_types": source_types, "sink_types": sink_types}
    return parse_flow(text, file, folder=folder, code=code, environment=environment, **types)


def _failed(code: str, place: Place, message: str, remedy: str) -> Parsed:
    return Parsed(None, (Problem(code, place, message, remedy),), CallPlaces(place, {}))


def _look_at(text: str, file: str) -> Parsed:
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError) as error:
        return _no_python(error, file)
    if not any(_sets_flow(statement) for statement in ast.walk(tree)):
        return _failed("flow-file-python", Place(file), "the module has no variable `flow`", "end it with: flow = Flow(…)")
    message = "only the syntax of a Python flow file was checked: validate does not execute code"
    remedy = f"`scribengin plan {shlex.quote(file)}` executes the file and checks all of the flow"
    warning = Problem("not-executed", Place(file, 1, 1), message, remedy, "warning")
    return Parsed(None, (warning,), CallPlaces(Place(file), {}))


def _sets_flow(statement: ast.AST) -> bool:
    match statement:
        case ast.Name(id="flow" | "app", ctx=ast.Store()):
            return True
        case ast.ImportFrom(names=names):
            return any((name.asname or name.name) in ("flow", "app") for name in names)
    return False


def _no_python(error: SyntaxError | ValueError, file: str) -> Parsed:
    line, column = (error.lineno or 1, error.offset or 1) if isinstance(error, SyntaxError) else (1, 1)
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    return _failed("flow-file-python", Place(file, line, column), f"not valid Python: {what}", "correct the Python code")


def _execute(path: Path, file: str, base: Path | None) -> Parsed:
    try:
        with data_in(base):
            module = _module(path)
    except InputError as error:
        return Parsed(None, error.problems, CallPlaces(Place(file), {}))
    except SyntaxError as error:
        return _no_python(error, error.filename or file)
    except Exception as error:
        line = next((frame.lineno for frame in reversed(traceback.extract_tb(error.__traceback__)) if frame.filename == file), 0)
        message = f"the module raised {type(error).__name__}: {error}"
        return _failed(
            "flow-file-python", Place(file, line or 0, 1 if line else 0), message, "correct the module; it must load without an error"
        )
    flow = getattr(module, "flow", getattr(module, "app", None))
    if not isinstance(flow, Flow):
        found = "has no variable `flow`" if flow is None else f"has a variable `flow` that is a {type(flow).__name__}, not a Flow"
        return _failed("flow-file-python", Place(file), f"the module {found}", "end it with: flow = Flow(…)")
    return Parsed(flow, (), CallPlaces.of(flow, Place(file, 1, 1)))


_FOLDERS: set[Path] = set()


def executed_in() -> frozenset[str]:
    """The folders of the Python flows executed here. They are on this process's Python path; other flows must not import from them."""
    return frozenset(map(str, _FOLDERS))


def forget_others(folder: Path) -> None:
    """Unload modules of other Python flows whose names also exist in this folder: a flow must import its own modules if another flow, or
    another version of it, was executed before."""
    others = tuple(str(other) + os.sep for other in _FOLDERS if other != folder)
    _unload(folder, lambda file: file.startswith(others) and "site-packages" not in file)  # an environment may be inside such a folder


def _unload(folder: Path, is_meant: Callable[[str], bool]) -> None:
    for name, module in list(sys.modules.items()):
        if is_meant(str(getattr(module, "__file__", None) or "")):
            top = folder / name.partition(".")[0]
            if top.is_dir() or top.with_suffix(".py").is_file():
                del sys.modules[name]


def _module(path: Path) -> ModuleType:
    """Execute the file as a module under its own name, so that its functions are found as `name:function` in the flow's folder."""
    folder = path.resolve().parent
    forget_others(folder)
    _unload(folder, lambda file: code_archive.inside(file) is not None)  # modules of flows that ran in this process
    _FOLDERS.add(folder)
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, str(path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    known = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if known is None:
            del sys.modules[name]
        else:
            sys.modules[name] = known
        raise
    return module
