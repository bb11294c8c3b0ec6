"""Every record that the tree declares is written by somebody: by code outside the registry's own, or, where people alone do, by nobody."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import scribengin
from scribengin.registry import tree
from scribengin.registry.tree import TREE, Branch, Writer

SOURCES = Path(scribengin.__file__).parent
NAMES = {id(branch): name for name, branch in vars(tree).items() if isinstance(branch, Branch)}
WRITING = {"create", "put", "_put", "replace", "Create", "Replace", "RegistryLease", "Presence"}
"""what is called on a place, with it, or on what was read there, to write it; the last two take a right, or say that one is there"""
ELECTION = "Election"
"""takes `leader`, whose name it knows by itself"""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def written_by(source: str) -> set[str]:
    """The names of the branches that a module writes, as far as that shows in its text: a writing call in whose receiver or arguments
    the branch is named, or something that was made of it."""
    module = ast.parse(source)
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.module == tree.__name__
        for alias in node.names
        if isinstance(getattr(tree, alias.name), Branch)
    }
    fields: dict[str, set[str]] = {}
    """attribute of some object → the branches that it was made of"""
    found: set[str] = set()
    for _ in range(2):  # a field may be read above where it is set
        for scope in [module, *(node for node in ast.walk(module) if isinstance(node, _SCOPES))]:
            found |= _Scope(scope, imported, fields).written()
    if any(isinstance(node, ast.Name) and node.id == ELECTION for node in ast.walk(module)):
        found.add("LEADER")
    return found


class _Scope:
    def __init__(self, scope: ast.AST, imported: dict[str, str], fields: dict[str, set[str]]) -> None:
        self._nodes = list(ast.walk(scope))
        self._made: dict[str, set[str]] = {name: {branch} for name, branch in imported.items()}
        self._fields = fields

    def written(self) -> set[str]:
        pairs = [pair for node in self._nodes for pair in _assigned(node)]
        before = -1
        while before != (before := sum(map(len, [*self._made.values(), *self._fields.values()]))):
            for target, value in pairs:
                if branches := self._of(value):
                    self._note(target, branches)
        found = set[str]()
        for node in self._nodes:
            if isinstance(node, ast.Call) and _called(node) in WRITING:
                receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
                for part in (*receiver, *node.args):
                    found |= self._of(part)
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and self._writes_what_it_returns():
                found |= self._of(node.value.elts[0])
        return found

    def _writes_what_it_returns(self) -> bool:
        """`control.executor` has one function that says where each action writes, and what."""
        return isinstance(self._nodes[0], ast.FunctionDef) and self._nodes[0].name == "_written"

    def _of(self, value: ast.AST) -> set[str]:
        found = set[str]()
        for node in ast.walk(value):
            if isinstance(node, ast.Name):
                found |= self._made.get(node.id, set())
            elif isinstance(node, ast.Attribute):
                found |= self._fields.get(node.attr, set())
        return found

    def _note(self, target: ast.AST, branches: set[str]) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._made.setdefault(node.id, set()).update(branches)
            elif isinstance(node, ast.Attribute):  # of `self.spots[True] = …` too
                self._fields.setdefault(node.attr, set()).update(branches)


def _assigned(node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    match node:
        case ast.Assign(targets, value):
            return [(target, value) for target in targets]
        case ast.AnnAssign(target, _, ast.AST() as value) | ast.NamedExpr(target, value) | ast.AugAssign(target, _, value):
            return [(target, value)]
        case ast.For(target, values) | ast.comprehension(target, values):
            return [(target, values)]
    return []


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


@cache
def all_written() -> frozenset[str]:
    """By any module outside `registry/` and `testing/`."""
    modules = [path for path in SOURCES.rglob("*.py") if path.relative_to(SOURCES).parts[0] not in ("registry", "testing")]
    texts = [text for path in modules if (tree.__name__ in (text := path.read_text()) or ELECTION in text)]
    return frozenset(name for text in texts for name in written_by(text))


@pytest.mark.parametrize("branch", TREE, ids=lambda branch: branch.path)
def test_every_declared_record_is_written_by_somebody(branch: Branch[object]) -> None:
    if set(branch.writers) == {Writer.PERSON}:
        return
    right = next((NAMES[id(other)] for other in TREE if branch.path == f"{other.path}.term"), NAMES[id(branch)])  # a right writes both
    assert right in all_written(), f"{branch.path} is declared, and nothing in src/ writes it: have it written, or take it out of the tree"


def test_what_people_may_write_says_what_a_change_does() -> None:
    assert [branch.path for branch in TREE if Writer.PERSON in branch.writers and not branch.change] == []


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("registry.commit(ACK(flow, tier).create(Ack()))", {"ACK"}),
        ("spot = LIMIT(flow)\nregistry.commit(put(registry, spot, record))", {"LIMIT"}),
        (
            "for branch, link in [(NODE_HTTP, a), (NODE_JSON, b)]:\n    commit(put(registry, branch(node), link))",
            {"NODE_HTTP", "NODE_JSON"},
        ),
        ("self.spots = ACK(flow, tier)\ndef later(self):\n    put(registry, self.spots, 1)", {"ACK"}),
        ("stored = read_stored(registry, LIMIT(flow))\ncommit(stored.replace(record))", {"LIMIT"}),
        ("found = read_record(registry, ACK(flow, tier))\nregistry.commit(LIMIT(flow).create(found.record))", {"ACK", "LIMIT"}),
        ("found = registry.read(ACK(flow, tier).path)\nprint(found)", set()),
        ("gone = [Delete(ACK(flow, tier).path)]\nregistry.commit(*gone)", set()),
    ],
)
def test_what_is_only_read_or_removed_is_not_written(text: str, written: set[str]) -> None:
    imports = f"from {tree.__name__} import ACK, LIMIT, NODE_HTTP, NODE_JSON\n"
    assert written_by(imports + text) == written
