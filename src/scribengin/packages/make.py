"""`scribengin package create`: makes a package from a folder of flow files, and reports all problems at once."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.core.errors import EnvironmentFault, InputError
from scribengin.core.problems import Place, Problem
from scribengin.core.secret import Secret
from scribengin.packages.package import LIMIT_BYTES, LIMIT_FILES, MANIFEST, PackedFlow, build_package, is_inside
from scribengin.plan.code_files import code_files, linked_code
from scribengin.plan.relative_places import relative_places
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scribengin.packages.package import Package
    from scribengin.plan.relative_places import RelativePlace
    from scribengin.spec.model import Flow


# Finds the flow files of a folder by their text: nothing is executed, and a flow with errors is found too.


_BLOCK = re.compile(r"^[\"']?(?:sources|sinks)[\"']?\s*:", re.MULTILINE)
_BRACES = re.compile(r"(?:#[^\n]*\n|\s)*\{(?:.*[\s,{])?[\"']?(?:sources|sinks)[\"']?\s*:", re.DOTALL)


def flow_files(folder: Path) -> tuple[list[Path], list[Problem]]:
    """The flow files directly in `folder`, by name, and a Problem for each possible flow file that cannot be read.

    A `.yaml` or `.yml` file is a flow file if it has `sources` or `sinks` at its top level; a `.py` file if it imports `scribengin` and
    sets `flow`, or `app`, at its top level.
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
        except UnicodeDecodeError:  # for a flow, validation reports the place; a module may have another encoding
            if path.suffix != ".py":
                flows.append(path)
            continue
        if _makes_flow(text) if path.suffix == ".py" else _BLOCK.search(text) or _BRACES.match(text):
            flows.append(path)
    return flows, problems


def _makes_flow(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # in a module, the checks of steps report it; a flow is recognised by its text
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


REQUIREMENTS = ("requirements.lock", "requirements.txt")
"""files beside the flows that are included as text; nothing is installed"""
_ELSEWHERE = ("env-missing", "secret-missing")
"""codes of values that are needed only on the host that runs the flows, not where the package is made"""
_SECRET_BYTES = 8
"""shorter values of secrets are not searched for, because they occur in many texts by chance"""
_SECRET = re.compile(r"\$\{secret:(env|file)/([^}]+)\}")
_PASSWORD = re.compile(r"://[^/\s:@]*:(?!\$\{)[^/\s@]+@")
"""a password in an address"""


@dataclass(frozen=True, slots=True)
class BuiltPackage:
    """A package with its warnings. `relative`: flow → its relative paths, which need a base folder on the host that runs the flow; None if
    values that are filled in are not available here."""

    package: Package
    relative: Mapping[str, tuple[RelativePlace, ...] | None]
    warnings: tuple[Problem, ...]


def make_package(
    folder: Path, environment: Mapping[str, str], *, texts: Mapping[str, str] | None = None, asked: str | None = None
) -> BuiltPackage:
    """Pack the flow files directly in `folder` (not in subfolders), the `.py` files under it, the schema files that the flows name, and the
    requirements. Flows in Python are executed, as by `plan`. Nothing is written.

    Args:
        folder: the folder.
        environment: the values to fill in.
        texts: file of a flow → the text that replaces it in the package, under the name of `text_name`; the file itself is included only as
            code.
        asked: the flow file for which the package is made; other flow files with errors are left out, with a warning. None: all are
            required.

    Raises:
        InputError: every Problem of every flow, and of files that cannot be included.
    """
    making = _Making(folder, environment, asked)
    flows = making.read_flows()
    content = making.read_files(flows)
    for path, text in (texts or {}).items():
        flows = {text_name(path) if name == path else name: flow for name, flow in flows.items()}
        if not path.endswith(".py"):
            del content[path]
        content[text_name(path)] = text.encode()
        making.unfilled |= {text_name(path)} if path in making.unfilled else set()
    making.look_for_secrets(flows, content)
    if any(problem.severity == "error" for problem in making.problems):
        raise InputError(making.problems)
    packed = [PackedFlow(flow.name, path) for path, flow in flows.items()]
    requirements = [name for name in REQUIREMENTS if name in content]
    package = build_package(_name(packed), version("scribengin"), packed, requirements, content)
    relative = {flow.name: None if path in making.unfilled else relative_places(flow) for path, flow in flows.items()}
    return BuiltPackage(package, relative, tuple(making.problems))


def text_name(path: str) -> str:
    """The name in a package of the text that replaces the flow file at `path`.

    >>> text_name("app.py")
    'app.spread.yaml'
    """
    return f"{path.rpartition('.')[0]}.spread.yaml"


def _name(flows: list[PackedFlow]) -> str:
    """The package's name. It depends only on the content, so that a copy of the folder under another name gives the same package."""
    names = sorted(flow.name for flow in flows)
    return "+".join(names if len(names) <= 3 else [*names[:2], f"{len(names) - 2}-more"])


class _Making:
    """Reads one folder once and collects its problems."""

    def __init__(self, folder: Path, environment: Mapping[str, str], asked: str | None) -> None:
        self._folder = folder
        self._top = folder.resolve()
        self._environment = environment
        self._asked = asked
        self._schema_files: dict[str, tuple[Path, ...]] = {}
        """file of a flow → the schema files that its text names"""
        self.problems: list[Problem] = []
        self.unfilled: set[str] = set()
        """files of flows with values that are not available here"""

    def read_flows(self) -> dict[str, Flow]:
        """Read all flow files: path in the package → flow."""
        flows: dict[str, Flow] = {}
        owners: dict[str, Path] = {}
        found, problems = flow_files(self._folder)
        for problem in problems:
            self._keep(Path(problem.place.file), [problem])
        for file in sorted(found, key=lambda file: file.name != self._asked):
            flow, told = self._read_flow(file)
            if flow is not None and flow.name in owners:
                message = f'this file and {owners[flow.name]} both define flow "{flow.name}"'
                rename = "give one of the flows another name, or remove its file"
                told.append(Problem("package-flow-twice", Place(str(file)), message, rename))
            if self._keep(file, told) and flow is not None:
                owners.setdefault(flow.name, file)
                flows[file.name] = flow
        if not found and not problems:
            below = sorted({str(file.parent) for file in self._folder.glob("*/*") if file.suffix in (".yaml", ".yml")})
            remedy = (
                f"pass the folder that contains them, such as {below[0]}" if below else "write one; `scribengin init` writes an example"
            )
            self._problem("package-empty", self._folder, "there is no flow file in this folder", remedy)
        return dict(sorted(flows.items()))

    def _read_flow(self, file: Path) -> tuple[Flow | None, list[Problem]]:
        """Read a flow file and the files it names, with all problems."""
        flow, told = validate_file(file, self._environment, execute=True)
        if flow is None:
            return None, list(told)
        told = [self._elsewhere(problem, file.name) if problem.code in _ELSEWHERE else problem for problem in told]
        schemas = list(self._schemas(file.name, flow))
        self._schema_files[file.name] = tuple(path for path in schemas if not isinstance(path, Problem))
        return flow, [*told, *(path for path in schemas if isinstance(path, Problem))]

    def _keep(self, file: Path, told: Sequence[Problem]) -> bool:
        """Collect the problems of a file. Returns False if it has errors and is left out because another file is required."""
        errors = [problem for problem in told if problem.severity == "error"]
        if not errors or self._asked in (None, file.name):
            self.problems += told
            return True
        first = errors[0]
        line = f", in line {first.place.line}" if first.place.line else ""
        count = f"{len(errors)} error{'s' * (len(errors) > 1)}"
        message = f"the file is not in the package, because it has {count}; the first{line}: {first.message}"
        self.problems.append(Problem("flow-left-out", Place(str(file)), message, first.remedy, "warning"))
        return False

    def _elsewhere(self, problem: Problem, file: str) -> Problem:
        self.unfilled.add(file)
        remedy = f"it is resolved on the host that runs the flow; values that depend on it were not checked here ({problem.remedy})"
        return replace(problem, severity="warning", remedy=remedy)

    def read_files(self, flows: Mapping[str, Flow]) -> dict[str, bytes]:
        """Path in the package → bytes, for all included files."""
        try:
            code = code_files(self._folder)
        except EnvironmentFault as error:
            code = []
            self._problem("package-size", self._folder, error.message, error.remedy)
        except OSError as error:  # a broken link
            code = []
            self._problem("package-file", self._folder, f"{error.filename} cannot be read: {error.strerror}", "correct it, or remove it")
        for link in linked_code(self._folder):
            message = "this is a link to a folder with modules; the package would not contain the folder"
            self._problem("package-link", link, message, "replace the link with the folder itself, or install its modules")
        schemas = [path for file in flows for path in self._schema_files[file]]
        beside = [self._folder / name for name in REQUIREMENTS if (self._folder / name).exists()]
        content: dict[str, bytes] = {}
        for path in dict.fromkeys([*(self._folder / name for name in flows), *code, *schemas, *beside]):
            name = path.relative_to(self._folder).as_posix()
            if not is_inside(name) or name == MANIFEST:
                self._problem("package-file", path, "a package cannot contain a file of this name", "give it another name")
            elif (data := self._read(path)) is not None:
                content[name] = data
        size = sum(map(len, content.values()))
        if size > LIMIT_BYTES or len(content) >= LIMIT_FILES:
            message = (
                f"the folder has {len(content)} files with {size / 2**20:.0f} MiB; the limit of a package is {LIMIT_FILES - 1} files and "
            )
            remedy = "move the flows to a folder of their own, and keep data outside it"
            self._problem("package-size", self._folder, f"{message}{LIMIT_BYTES // 2**20} MiB", remedy)
        return content

    def _schemas(self, file: str, flow: Flow) -> Iterator[Path | Problem]:
        """The schema files that the flow's text names; a Problem for each that cannot be included."""
        for types, nodes in ((catalog.source_types(), flow.sources.values()), (catalog.sink_types(), flow.sinks.values())):
            for node in nodes:
                for option in types[node.type].options if node.type in types else ():
                    value = node.options.get(option.name) if option.travels else None
                    for text in value.values() if isinstance(value, dict) else [] if value is None else [value]:
                        yield self._schema(file, f"{option.name} of {node.id}", str(text))

    def _schema(self, file: str, what: str, text: str) -> Path | Problem:
        path, place = self._folder / text, Place(str(self._folder / file))
        if not is_inside(text):
            message = f"{what} is {text}, which is outside {self._folder}, so the package would not contain it"
            return Problem("package-link", place, message, "put the file beside the flow, and write its path without ..")
        if not path.is_file():
            message = f"{what} is {text}, but that file does not exist"
            return Problem("package-file", place, message, "add the file; its path is relative to the flow file's folder")
        return path

    def _read(self, path: Path) -> bytes | None:
        if not path.resolve().is_relative_to(self._top):
            message = f"this is a link to {path.resolve()}, which is outside {self._folder}"
            self._problem("package-link", path, message, "replace the link with the file itself")
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            self._problem("package-file", path, f"the file cannot be read: {error.strerror}", "make it readable, or take it away")
            return None

    def look_for_secrets(self, flows: Mapping[str, Flow], content: Mapping[str, bytes]) -> None:
        """Report a Problem for each secret in the package: the file of a secret, or the value of one."""
        for file, flow in flows.items():
            secrets = [found for each in _secrets(flow) for found in _SECRET.findall(each.reference)]
            references = [(path, f"${{secret:file/{path}}}") for kind, path in secrets if kind == "file"]
            keyrings = [(path, "a keyring") for path in _keyrings(flow)]
            for path, what in dict.fromkeys([*references, *keyrings]):
                if (name := self._name_of(path)) in content:
                    message = f"{name} is {what} of the flow, and the package would contain it"
                    self._problem("package-secret", self._folder / file, message, "give it another name, or move it to another folder")
            for kind, named in dict.fromkeys(secrets):
                reference, value = f"${{secret:{kind}/{named}}}", self._value(kind, named)
                for name in [name for name, data in content.items() if len(value) >= _SECRET_BYTES and value.encode() in data]:
                    remedy = f"remove it from the file, and write {reference}"
                    self._problem("package-secret", self._folder / name, f"this file contains the value of {reference}", remedy)
        for name in REQUIREMENTS:
            if _PASSWORD.search(content.get(name, b"").decode("utf-8", "replace")):
                message = "an address in this file contains a password, and the package would contain it"
                self._problem("package-secret", self._folder / name, message, "write ${NAME} instead; pip replaces it")

    def _value(self, kind: str, name: str) -> str:
        """The value of a secret that was filled in: only that of the reference, not the text around it."""
        return self._environment.get(name, "") if kind == "env" else (self._top / name).read_text(encoding="utf-8").strip()

    def _name_of(self, path: str) -> str:
        whole = (self._top / path).resolve()
        return whole.relative_to(self._top).as_posix() if whole.is_relative_to(self._top) else ""

    def _problem(self, code: str, at: Path, message: str, remedy: str) -> None:
        self.problems.append(Problem(code, Place(str(at)), message, remedy))


def _secrets(value: Any) -> Iterator[Secret]:
    """All secrets anywhere in a flow."""
    if isinstance(value, Secret):
        yield value
        return
    inside: Iterable[Any] = ()
    if is_dataclass(value) and not isinstance(value, type):
        inside = (getattr(value, part.name) for part in fields(value))
    elif hasattr(value, "values"):
        inside = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    for each in inside:
        yield from _secrets(each)


def _keyrings(flow: Flow) -> Iterator[str]:
    for edge in (flow.defaults.edge, *flow.edges.values()):
        if edge.encryption is not None and edge.encryption.keyring is not None:
            yield edge.encryption.keyring
