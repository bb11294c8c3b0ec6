"""Reads what is known of a python step's function from the syntax tree of its module. User code is never imported."""

from __future__ import annotations

import ast
import inspect
import os
import sys
import textwrap
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from scribengin.core import code_archive
from scribengin.core.problems import Place, did_you_mean
from scribengin.spec.functions import Form, form_of
from scribengin.spec.load import executed_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from scribengin.spec.model import Utilities


# Finds out from the text of a function whether it only tests its record: its annotation, and the lines that change the record.


_CHANGE = ("clear", "pop", "popitem", "setdefault", "update")
"""methods of a dict that change it"""
_CHANGE_INSIDE = (*_CHANGE, "append", "extend", "insert", "remove", "reverse", "sort")
"""methods that change a list or dict inside a record"""


def is_bool(function: ast.FunctionDef) -> bool:
    """True if the function is annotated `-> bool`."""
    match function.returns:
        case ast.Name(id="bool") | ast.Constant(value="bool"):
            return True
        case _:
            return False


def changing_lines(function: ast.FunctionDef, *, bound: bool) -> Iterator[int]:
    """The lines that set, delete or pop a key of the record, or something inside it, through the record's own name."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][1 if bound else 0 :][:1]
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()) if _within(value) in names:
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if name in names and attr in _CHANGE:
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Subscript() as value, attr=attr)) if (
                _within(value) in names and attr in _CHANGE_INSIDE
            ):
                yield node.lineno
            case _:
                pass


def _within(node: ast.expr) -> str:
    """The name at the start of `row["a"]["b"]`; empty for another expression."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# Finds modules that a flow names: in the flow file's folder, then on the Python path; never in the working directory, nor in folders that
# other flows have added to this process.


def find_module(module: str, folder: Path) -> Path | None:
    """The source file of a module, found without importing any part of it; None if there is none."""
    within = folder.joinpath(*module.split("."))
    for candidate in (within.with_suffix(".py"), within / "__init__.py"):
        if candidate.is_file():
            return candidate
    return _file_of_module(module, tuple(_python_path()))


def _python_path() -> list[str]:
    """The folders of the Python path that do not belong to a flow."""
    asked_for = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    left_out = executed_in() | {str(Path.cwd())}
    others = [part for part in sys.path if part and not code_archive.is_archive(part)]
    return [part for part in others if part in asked_for or str(Path(part).absolute()) not in left_out]


@lru_cache(maxsize=256)
def _file_of_module(module: str, on: tuple[str, ...]) -> Path | None:
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
    # for a module in an archive (zipimport) the path is that of the archive: the module has no file of its own
    return next((each for each in (file, *file.parents) if each.is_file()), file)


Kind = Literal["function", "class", "unknown"]
_FORMS: tuple[Form, ...] = ("record", "batch", "frame")
_FOLLOWED_IMPORTS = 8
_CALLED_WITH = "name a function that takes one record (or batch, or frame)"


@dataclass(frozen=True, slots=True)
class FunctionFault:
    """A fault of a reference. `place` is set if the module's syntax is wrong, and is in the module; None: use the place in the flow."""

    code: str
    message: str
    remedy: str = ""
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """What is known of a function. `kind` is `unknown` if the syntax tree does not show it (made by a call, a star import, a compiled
    module); that is not a fault."""

    form: Form = "record"
    kind: Kind = "unknown"
    line: int = 0
    file: Path | None = None
    branches: tuple[tuple[str, int], ...] = ()
    """(branch, line) for every `to("branch", …)` in it"""
    tests: bool | None = None
    """True if it is annotated `-> bool`; None if unknown"""
    changes: tuple[int, ...] = ()
    """the lines that change the record that is passed to it"""
    problems: tuple[FunctionFault, ...] = ()


def inspect_function(reference: str, folder: Path, function: Callable[..., Any] | None = None) -> FunctionInfo:
    """Inspect `module:name`. `function` is the object itself, if the flow was built in Python."""
    if function is not None:
        return _inspect_object(reference, function)
    module, colon, name = reference.partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        return _fault("function-syntax", f'"{reference}" is not a function reference', 'write module:name, such as "steps:has_tag"')
    return _inspect(module, name, folder, depth=0)


def inspect_utilities(action: Utilities, folder: Path) -> tuple[FunctionInfo, ...]:
    """`inspect_function` for each utility, in order."""
    return tuple(inspect_function(reference, folder, action.function(index)) for index, reference in enumerate(action.references))


def _inspect_object(reference: str, function: Callable[..., Any]) -> FunctionInfo:
    code = getattr(_called(function)[0], "__code__", None)
    info = FunctionInfo(
        form_of(function),
        "class" if isinstance(function, type) else "function",
        code.co_firstlineno if code is not None else 0,
        Path(code.co_filename) if code is not None else None,
        tests=tests_object(function),
        changes=_changes_of_object(function),
    )
    if not callable(function):
        return replace(info, problems=(FunctionFault("python-not-callable", f"{reference} is a {type(function).__name__}", _CALLED_WITH),))
    try:
        called = inspect.signature(function.__call__ if isinstance(function, type) else function)
        called.bind(*([None, None] if isinstance(function, type) else [None]))
    except TypeError as error:
        return replace(
            info, problems=(FunctionFault("python-signature", f"{reference} cannot be called with one argument: {error}", _CALLED_WITH),)
        )
    except ValueError:  # a builtin without a signature
        pass
    return info


def tests_object(function: Callable[..., Any]) -> bool:
    """True if the function, or the `__call__` of the class or object, is annotated `-> bool`."""
    return getattr(_called(function)[0], "__annotations__", {}).get("return") in (bool, "bool")


def _called(function: Callable[..., Any]) -> tuple[Callable[..., Any], bool]:
    """(the callable that receives the row: the function itself, or the `__call__` of the class or object; True if its first argument is the
    object)."""
    if inspect.isroutine(function):
        return function, inspect.ismethod(function)
    return (function if isinstance(function, type) else type(function)).__call__, True


def _changes_of_object(function: Callable[..., Any]) -> tuple[int, ...]:
    """See `changing_lines`; empty if the function has no source text (an interactive session)."""
    called, bound = _called(function)
    try:
        lines, first = inspect.getsourcelines(called)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return ()
    definition = tree.body[0] if tree.body else None
    if not isinstance(definition, ast.FunctionDef):
        return ()
    return tuple(first - 1 + line for line in changing_lines(definition, bound=bound))


def _fault(code: str, message: str, remedy: str = "", place: Place | None = None, file: Path | None = None) -> FunctionInfo:
    return FunctionInfo(file=file, problems=(FunctionFault(code, message, remedy, place),))


def _inspect(module: str, name: str, folder: Path, *, depth: int) -> FunctionInfo:
    file = find_module(module, folder)
    if file is None:
        own = module.removesuffix(".py")
        if own != module:  # the reference names the file instead of the module
            there = find_module(own, folder) is not None
            put = f"put {own.replace('.', '/')}.py beside the flow file"
            near = f'did you mean "{own}:{name}"?' if there else f'write "{own}:{name}", and {put}'
        else:
            near = did_you_mean(module, (path.stem for path in folder.glob("*.py")))
        remedy = near or f"put {module.replace('.', '/')}.py beside the flow file, or install the package"
        return _fault("python-module-missing", f'there is no module "{module}" in {folder} or on the Python path', remedy)
    if file.suffix != ".py":
        return FunctionInfo(file=file)
    source = _Module.read(file)
    if isinstance(source, FunctionFault):
        return FunctionInfo(file=file, problems=(source,))
    return source.inspect(name, module, folder, depth)


@dataclass(frozen=True)
class _Module:
    file: Path
    defined: dict[str, ast.stmt]
    """name → the last statement at the module's level that binds it"""
    open_ended: bool
    """True if it may define any name: it has a star import or `__getattr__`"""

    @staticmethod
    def read(file: Path) -> _Module | FunctionFault:
        try:
            stat = file.stat()
            return _read(file, stat.st_mtime_ns, stat.st_size)
        except SyntaxError as error:
            place = Place(str(file), error.lineno or 1, error.offset or 1)
            return FunctionFault("python-syntax", f"the module cannot be read: {error.msg}", place=place)
        except ValueError as error:  # null bytes
            return FunctionFault("python-syntax", f"the module cannot be read: {error}", place=Place(str(file), 1, 1))
        except OSError as error:
            return FunctionFault("python-module-missing", f"{file} cannot be read: {error.strerror}", "make it readable")

    def inspect(self, name: str, module: str, folder: Path, depth: int) -> FunctionInfo:
        statement = self.defined.get(name)
        match statement:
            case None if self.open_ended:
                return FunctionInfo(file=self.file)
            case None:
                near = did_you_mean(name, self.defined)
                callables = [name for name, bound in self.defined.items() if isinstance(bound, ast.FunctionDef | ast.ClassDef)]
                remedy = near or (f"it has {', '.join(callables[:8])}" if callables else "it does not define a function")
                return _fault("python-name-missing", f'{self.file.name} has no "{name}"', remedy, file=self.file)
            case ast.AsyncFunctionDef():
                remedy = "write `def`; async functions are not supported"
                return self._wrong("python-not-callable", name, statement, "is an `async` function", remedy)
            case ast.FunctionDef():
                return self._function(name, statement)
            case ast.ClassDef():
                return self._class(name, statement)
            case ast.ImportFrom() if depth < _FOLLOWED_IMPORTS:
                return self._imported(name, statement, module, folder, depth)
            case ast.Import():
                return self._wrong("python-not-callable", name, statement, "is a module", f'name a function in it: "{name}:…"')
            case ast.Assign(value=ast.Lambda() as made) | ast.AnnAssign(value=ast.Lambda() as made):
                info = FunctionInfo("record", "function", statement.lineno, self.file, tests=False)
                return self._checked(name, statement, info, made.args)
            case ast.Assign(value=ast.Name(id=other)) if other != name and depth < _FOLLOWED_IMPORTS:
                return self.inspect(other, module, folder, depth + 1)
            case ast.Assign(value=ast.Constant() | ast.List() | ast.Dict() | ast.Tuple() | ast.Set() | ast.JoinedStr()):
                return self._wrong("python-not-callable", name, statement, "is a value", "name a function or a class with `__call__`")
            case _:
                return FunctionInfo(line=statement.lineno, file=self.file)

    def _function(self, name: str, function: ast.FunctionDef) -> FunctionInfo:
        form, plain = self._decorated(function)
        info = FunctionInfo(form, "function", function.lineno, self.file, tuple(_branches_used(function)))
        info = replace(info, tests=is_bool(function), changes=tuple(changing_lines(function, bound=False)))
        return self._checked(name, function, info, function.args) if plain else info

    def _class(self, name: str, class_: ast.ClassDef) -> FunctionInfo:
        form, plain = self._decorated(class_)
        methods, whole = self._methods(class_)
        info = FunctionInfo(form, "class", class_.lineno, self.file, tuple(_branches_used(class_)))
        if "__call__" not in methods:
            if not whole:
                return info
            remedy = "give it `def __call__(self, row)`"
            return replace(info, problems=self._wrong("python-not-callable", name, class_, "has no `__call__`", remedy).problems)
        if "__init__" in methods and plain and (need := _needed(methods["__init__"].args, bound=True)):
            told = f"needs {need} to be created"
            return replace(
                info,
                problems=self._wrong(
                    "python-signature", name, class_, told, "give them defaults; the class is created without arguments"
                ).problems,
            )
        if "open" in methods and (need := _needed(methods["open"].args, bound=True)):
            told = f"has an `open` that needs {need}"
            return replace(info, problems=self._wrong("python-signature", name, class_, told, "write `def open(self)`").problems)
        call = methods["__call__"]
        info = replace(info, tests=is_bool(call), changes=tuple(changing_lines(call, bound=True)))
        return self._checked(name, class_, info, call.args, bound=True)

    def _methods(self, class_: ast.ClassDef) -> tuple[dict[str, ast.FunctionDef], bool]:
        """(the methods, including those of base classes in the same module; True if these are all)."""
        found = {part.name: part for part in class_.body if isinstance(part, ast.FunctionDef)}
        whole = True
        for ancestor in class_.bases:
            above = self.defined.get(ancestor.id) if isinstance(ancestor, ast.Name) else None
            if isinstance(above, ast.ClassDef) and above is not class_:
                inherited, known = self._methods(above)
                found = inherited | found
                whole = whole and known
            elif not (isinstance(ancestor, ast.Name) and ancestor.id in ("object", "Generic", "Protocol")):
                whole = False
        return found, whole

    def _imported(self, name: str, statement: ast.ImportFrom, module: str, folder: Path, depth: int) -> FunctionInfo:
        original = next(alias.name for alias in statement.names if (alias.asname or alias.name) == name)
        parts = module.split(".") if self.file.name == "__init__.py" else module.split(".")[:-1]
        parent = parts[: len(parts) - statement.level + 1] if statement.level else []
        target = ".".join([*parent, *([statement.module] if statement.module else [])])
        if not target:
            return FunctionInfo(line=statement.lineno, file=self.file)
        followed = _inspect(target, original, folder, depth=depth + 1)
        lost = any(fault.code in ("python-module-missing", "python-name-missing") for fault in followed.problems)
        return FunctionInfo(line=statement.lineno, file=self.file) if lost else followed

    def _decorated(self, definition: ast.FunctionDef | ast.ClassDef) -> tuple[Form, bool]:
        """(the form that a decorator sets, True if the definition's own signature is in force)."""
        form: Form = "record"
        plain = True
        for decorator in definition.decorator_list:
            marked = self._form_named(decorator)
            if marked is None:
                plain = False
            else:
                form = marked
        return form, plain

    def _form_named(self, decorator: ast.expr) -> Form | None:
        match decorator:
            case ast.Name(id=local):
                bound = self.defined.get(local)
                if not (isinstance(bound, ast.ImportFrom) and (bound.module or "").split(".")[0] == "scribengin"):
                    return None
                word = next(alias.name for alias in bound.names if (alias.asname or alias.name) == local)
            case ast.Attribute(value=ast.Name(id=_), attr=word):
                pass
            case _:
                return None
        return next((form for form in _FORMS if form == word), None)

    def _checked(
        self, name: str, statement: ast.stmt, info: FunctionInfo, arguments: ast.arguments, *, bound: bool = False
    ) -> FunctionInfo:
        """Add a fault if it cannot be called with one row (or batch, or frame)."""
        positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][1 if bound else 0 :]
        keyword_only = _needed_keywords(arguments)
        required = len(positional) - len(arguments.defaults)
        if not positional and arguments.vararg is None:
            told = "takes no argument"
        elif required > 1:
            told = f"needs {required} arguments ({', '.join(positional[:required])})"
        elif keyword_only:
            told = f"needs the keyword argument {', '.join(keyword_only)}"
        else:
            return info
        what = {"record": "one record, a dict", "batch": "one pyarrow.RecordBatch", "frame": "one DataFrame"}[info.form]
        fault = self._wrong("python-signature", name, statement, told, f"define it with one parameter; it is called with {what}").problems
        return replace(info, problems=fault)

    def _wrong(self, code: str, name: str, statement: ast.stmt, told: str, remedy: str) -> FunctionInfo:
        return _fault(code, f'"{name}" ({self.file.name}:{statement.lineno}) {told}', remedy, file=self.file)


@lru_cache(maxsize=256)
def _read(file: Path, _modified_ns: int, _size: int) -> _Module:
    tree = ast.parse(file.read_bytes(), str(file))
    defined: dict[str, ast.stmt] = {}
    open_ended = False
    for statement in _module_level(tree.body):
        for name in _bound(statement):
            open_ended = open_ended or name in ("*", "__getattr__")
            defined[name] = statement
    return _Module(file, defined, open_ended)


def _module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for inner in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With):
                yield from _module_level(getattr(statement, inner, []))
        if isinstance(statement, ast.Try):
            for handler in statement.handlers:
                yield from _module_level(handler.body)


def _bound(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names):
            return [(alias.asname or alias.name).partition(".")[0] for alias in names]
        case ast.ImportFrom(names=names):
            return [alias.asname or alias.name for alias in names]
        case ast.Assign(targets=targets):
            return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def _needed(arguments: ast.arguments, *, bound: bool) -> str:
    """The arguments without a default, for people; empty if there are none."""
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    needed = positional[: len(positional) - len(arguments.defaults)][1 if bound else 0 :]
    return ", ".join([*needed, *_needed_keywords(arguments)])


def _needed_keywords(arguments: ast.arguments) -> list[str]:
    return [argument.arg for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]


def _branches_used(definition: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(definition):
        match node:
            case ast.Call(func=ast.Name(id="to"), args=[ast.Constant(value=str() as branch), *_]):
                yield branch, node.lineno
            case _:
                pass
