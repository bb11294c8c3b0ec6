"""How the source tree is kept: names that mean one thing each, and a wheel without this repository's own parts."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


@cache
def modules(source: Path) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(source.rglob("*.py"))}


def public_classes(source: Path) -> dict[str, list[str]]:
    found = defaultdict(list)
    for path, tree in modules(source).items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(source)))
    return found


def test_each_public_class_has_a_name_of_its_own() -> None:
    assert not {name: places for name, places in public_classes(SOURCE).items() if len(places) > 1}


def test_a_name_of_two_classes_is_found(tmp_path: Path) -> None:
    for file in ("a.py", "b.py"):
        (tmp_path / file).write_text("class Gate:\n    pass\n\n\nclass _Own:\n    pass\n")
    assert public_classes(tmp_path) == {"Gate": ["a.py", "b.py"]}


ENTRIES = (
    "scribengin",
    "scribengin.cli.__main__",
    "scribengin.worker.__main__",
    "scribengin.agent.__main__",  # `scribengin agent run` becomes this process
    "scribengin.worker.image_entry",  # the Dockerfile starts it
    "scribengin.reading",  # users read what is committed with it
    "scribengin.testing",  # and test their flows, connectors and sinks with these
    "scribengin.testing.own_sinks",
    "scribengin.testing.sqlite_store",
)
LOADED_BY_NAME = ("scribengin.cli.commands.", "scribengin.connectors.", "scribengin.agent.inputs.", "scribengin.testing.conformance")
COPIED = {"scribengin.cli.template.steps"}
"""into the folder that `scribengin init` makes"""


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(tree: ast.Module) -> set[str]:
    """All names that may be modules: of imports, wherever they stand, and of texts that name a module to load."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("scribengin."):
            found.add(node.value.partition(":")[0])
    return found


def unused_modules(source: Path) -> set[str]:
    names = {module_name(path, source): tree for path, tree in modules(source).items()}
    known = {name: tree for name, tree in names.items() if name.partition(".")[0] == "scribengin"}
    reached: set[str] = set()
    waiting = [name for name in known if name in ENTRIES or name.startswith(LOADED_BY_NAME)]
    while waiting:
        name = waiting.pop()
        if name in known and name not in reached:
            reached.add(name)
            waiting += [name.rpartition(".")[0], *imported_by(known[name])]
    return set(known) - reached - COPIED


def test_each_module_of_the_wheel_serves_a_user() -> None:
    """One that only tests, campaigns or pages of this repository import belongs in `src/harness`."""
    assert not unused_modules(SOURCE)
    of_package = {path: tree for path, tree in modules(SOURCE).items() if path.is_relative_to(SOURCE / "scribengin")}
    assert not [path for path, tree in of_package.items() if any(name.partition(".")[0] == "harness" for name in imported_by(tree))]


def test_a_module_that_nobody_imports_is_found(tmp_path: Path) -> None:
    for name, text in {"__init__": "", "reading": "from scribengin import used", "used": "", "unused": "import scribengin.used"}.items():
        (tmp_path / "scribengin").mkdir(exist_ok=True)
        (tmp_path / "scribengin" / f"{name}.py").write_text(text)
    assert unused_modules(tmp_path) == {"scribengin.unused"}


def test_the_wheel_has_the_package_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"scribengin"}


PRIVATE_WORDS = {"look", "told", "said", "found", "heard", "stands"}


def test_no_function_has_a_name_that_says_nothing() -> None:
    def names(tree: ast.AST) -> set[str]:
        return {node.name.lstrip("_") for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}

    assert not {path: bad for path, tree in modules(SOURCE).items() if (bad := names(tree) & PRIVATE_WORDS)}


DECIDE = ("spark", "local", "control", "cli")
"""floors above `plan` that decide what happens to a node"""


def connector_names(source: Path) -> set[str]:
    """The types that a flow file can name, by their folders."""
    inits = (source / "scribengin" / "connectors").glob("*/__init__.py")
    return {path.parent.name for path in inits if "make_s" in path.read_text()} - {"group", "channel"}


def texts(*nodes: ast.expr | None) -> set[str]:
    """The texts among these, also inside a tuple, a set or a list."""
    inner = [each for node in nodes if isinstance(node, ast.Tuple | ast.Set | ast.List) for each in node.elts]
    return {node.value for node in (*nodes, *inner) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def names_in_rules(tree: ast.Module) -> set[str]:
    """What a module of `plan` compares with, has in a collection or an index, or imports a connector's module for."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                found |= texts(node.left, *node.comparators)
            case ast.Set() | ast.Tuple() | ast.List():
                found |= texts(node)
            case ast.Dict():
                found |= texts(*node.keys)
            case ast.Subscript():
                found |= texts(node.slice)
            case ast.MatchValue():
                found |= texts(node.value)
            case ast.ImportFrom() if (node.module or "").startswith("scribengin.connectors."):
                found.add((node.module or "").split(".")[2])
            case _:
                pass
    return found


def names_of_types(tree: ast.Module) -> set[str]:
    """The texts that a module compares a `.type` with; for a constant its name, in lower case."""
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    typed = [node for node in compared if any(isinstance(each, ast.Attribute) and each.attr == "type" for each in ast.walk(node.left))]
    constants = {each.id.lower() for node in typed for each in node.comparators if isinstance(each, ast.Name)}
    return constants | {name for node in typed for name in texts(*node.comparators)}


def named_connectors(source: Path) -> set[tuple[str, str]]:
    """(module, connector) where one of those floors names a connector."""
    names, found = connector_names(source), set[tuple[str, str]]()
    for path, tree in modules(source).items():
        floor, module = path.relative_to(source).parts[1:2], module_name(path, source).removeprefix("scribengin.")
        if floor == ("plan",):
            found |= {(module, name) for name in names_in_rules(tree) & names}
        elif floor and floor[0] in DECIDE:
            found |= {(module, name) for name in names_of_types(tree) & names}
    return found


def test_a_connector_name_is_found(tmp_path: Path) -> None:
    texts = {
        "connectors/tape": "def make_sink(place): ...",
        "plan/named": 'KINDS = ("tape", "else")',
        "plan/compared": 'def rule(node): return node.kind == "tape"',
        "plan/imported": "from scribengin.connectors.tape.options import SINK",
        "plan/free": "def rule(node): return node.abilities",
        "local/typed": 'def act(node): return node.type in ("tape",)',
        "local/constant": "def act(node): return node.type == TAPE",
        "local/free": 'COUNTS = ("tape",)',
    }
    for name, text in texts.items():
        (tmp_path / "scribengin" / name).mkdir(parents=True)
        (tmp_path / "scribengin" / name / "__init__.py").write_text(text)
    found = {
        ("plan.named", "tape"),
        ("plan.compared", "tape"),
        ("plan.imported", "tape"),
        ("local.typed", "tape"),
        ("local.constant", "tape"),
    }
    assert named_connectors(tmp_path) == found


KNOWN_CONNECTORS = {
    "`objects` is a kind of place here": {("plan.flow_links", "objects")},
    "`kafka` is a kind of channel here, which an edge of the flow chooses": {
        ("local.acks", "kafka"),
        ("plan.channel_text", "kafka"),
        ("plan.channels", "kafka"),
        ("plan.agent_lanes", "kafka"),
        ("plan.checks.edges", "kafka"),
        ("plan.checks.effects", "kafka"),
        ("plan.groups", "kafka"),
    },
    "`spark` is the engine here, a value of `parse`, or a key of the resources of a tier": {
        ("plan.checks.ends", "spark"),
        ("plan.checks.evolve", "spark"),
        ("plan.checks.tiers", "spark"),
        ("plan.stages", "spark"),
        ("plan.explain_tiers", "spark"),
        ("plan.stages", "spark"),
    },
    "the planner completes the options of a source that agents feed, and runs report to its channel": {
        ("plan.agent_lanes", "agents"),
        ("plan.checks.tiers", "agents"),
    },
    "the table of a summary is kept in the state of its Query": {
        ("local.rewind", "summary"),
        ("local.move_queries", "summary"),
        ("local.summaries", "summary"),
    },
    "the wildcards of a `path`, as the files connector reads them": {
        ("plan.checks.folders", "files"),
        ("plan.flow_links", "files"),
    },
    "maintenance opens the store or the table by parts of these connectors": {
        ("plan.maintained_places", "delta"),
        ("plan.maintained_places", "objects"),
    },
    "it reads files on this machine by the parts of the files connector": {
        ("cli.commands.source", "files"),
        ("local.spark_analysis", "files"),
        ("local.source_cleanup", "files"),
        ("local.preflight", "files"),
    },
}
"""why a connector is still named → (module, connector); it only gets shorter"""


def test_no_floor_decides_by_the_name_of_a_connector() -> None:
    """A node type declares it: `NodeType.checks`, `NodeType.abilities` and the other fields of core/options.py."""
    known = set().union(*KNOWN_CONNECTORS.values())
    found = named_connectors(SOURCE)
    assert not found - known
    assert not known - found, "take what is gone out of KNOWN_CONNECTORS"


def runtime_imports(source: Path) -> dict[str, set[str]]:
    """Module → the modules that it imports, also within functions; what only type checkers see is left out."""
    trees = {module_name(path, source): tree for path, tree in modules(source).items()}
    found: dict[str, set[str]] = {name: set() for name in trees}
    for name, tree in trees.items():
        waiting: list[ast.AST] = [tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import):
                found[name] |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                inner = {f"{node.module}.{each.name}" for each in node.names}
                found[name] |= (inner & trees.keys()) or {node.module}
            elif not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                waiting += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case)]
        found[name] &= trees.keys() - {name}
    return found


def circle_of(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other, directly or through others; empty if there are none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def test_no_modules_import_each_other() -> None:
    assert circle_of(runtime_imports(SOURCE)) == []


def test_modules_that_import_each_other_are_found_also_within_functions(tmp_path: Path) -> None:
    texts = {
        "a": "from b import x",
        "b": "def x() -> None:\n    import c",
        "d": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import e",
        "e": "import d",
    }
    for folder, last in (("one", "import a"), ("none", "")):
        (tmp_path / folder).mkdir()
        for name, text in (*texts.items(), ("c", last)):
            (tmp_path / folder / f"{name}.py").write_text(f"{text}\n")
    assert {*circle_of(runtime_imports(tmp_path / "one"))} == {"a", "b", "c"}
    assert circle_of(runtime_imports(tmp_path / "none")) == []
