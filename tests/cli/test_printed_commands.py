"""Every command that a text of Scribengin names is one, with its options: remedies, messages, help, the catalog of codes, the pages."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import scribengin
from scribengin.cli.code_catalog import everything
from scribengin.cli.tree import COMMANDS, RENAMED_OPTIONS, renamed
from scribengin.core.problems import Place, Problem
from scribengin.core.remedies import flow_command, for_flow
from tests.docs.doc_pages import GENERATED, PAGES, blocks_of
from tests.plugins.remedies import PLACEHOLDER, Mention, fault_of, faults_in, mentions, take_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(scribengin.__file__).parent
OF_MACHINES = ("testing/", "core/remedies.py", "registry/connection_settings.py", "connectors/sql/sink.py")
"""where texts begin so that are no commands: names of keys and of transactions, examples of code"""
SHELLS = ("bash", "console", "sh", "shell", "")


def texts_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of all texts but the module's own, with a placeholder for what is filled in."""
    inside: set[ast.AST] = {getattr(tree.body[0], "value", tree)} if ast.get_docstring(tree) else set()
    for node in ast.walk(tree):  # the outer ones come first
        if isinstance(node, ast.JoinedStr) and node not in inside:
            inside.update(node.values)
            yield node.lineno, "".join(rendered(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.lineno, node.value
        elif is_flow_command(node):
            yield node.lineno, rendered(node)


def is_flow_command(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == flow_command.__name__


def rendered(node: ast.AST) -> str:
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.FormattedValue():
            return rendered(node.value)
        case ast.Call() if is_flow_command(node):
            return flow_command(*(rendered(each) for each in node.args if not isinstance(each, ast.Starred)))
    return PLACEHOLDER


def source_texts() -> Iterator[tuple[str, str]]:
    """(place, text) of all texts for people that name a command."""
    for file in sorted(SOURCE.rglob("*.py")):
        if str(file.relative_to(SOURCE)).startswith(OF_MACHINES):
            continue
        text = file.read_text(encoding="utf-8")
        if "scribengin " in text or flow_command.__name__ in text:
            for line, found in texts_of(ast.parse(text)):
                if "scribengin " in found:
                    yield f"{file.relative_to(SOURCE)}:{line}", found


def test_every_command_that_a_text_of_the_source_names_is_one() -> None:
    found = [(place, text, mention) for place, text in source_texts() for mention in mentions(text)]
    assert len(found) > 250, "the search finds them"
    assert sum(mention.whole for _, _, mention in found) > 80
    faults = [f"{place}: {fault}" for place, text, _ in found for fault in faults_in(text)]
    assert list(dict.fromkeys(faults)) == []


def old_spellings(text: str) -> list[str]:
    """Those in the commands that a text names."""
    called = [" ".join(mention.words) for mention in mentions(text)]
    options = [(f"{each.command} ", f" {each.old} ") for each in RENAMED_OPTIONS]
    return [words for words in called if renamed(words.split()) or any(words.startswith(of) and old in f"{words} " for of, old in options)]


def test_no_text_of_the_source_names_a_command_by_its_old_spelling() -> None:
    found = {place: old for place, text in source_texts() if place.partition(":")[0] != "cli/tree.py" if (old := old_spellings(text))}
    assert found == {}
    assert old_spellings("see: scribengin dead list shop; or `scribengin limit shop --off`") == ["dead list shop", "limit shop --off"]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_no_page_names_a_command_by_its_old_spelling(page: str) -> None:
    text = (Path(scribengin.__file__).parents[2] / page).read_text(encoding="utf-8")
    shells = [re.sub(r" *\\\n *", " ", block.text) for block in blocks_of(page) if block.language in SHELLS]
    lines = [re.sub(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*", "", line) for block in shells for line in block.splitlines()]
    assert old_spellings("\n".join([*lines, *re.findall(r"`scribengin [^`]*`", text)])) == []


def test_every_command_about_a_flow_is_given_the_flow_of_the_person() -> None:
    for place, text in source_texts():
        for mention in mentions(text):
            if "FLOW" in mention.words and mention.whole:
                command = f"scribengin {' '.join(mention.words)}"
                assert "FLOW" not in for_flow(command, "shop.yaml"), f"{place}: core/remedies does not know the command"


def test_every_command_of_the_catalog_of_codes_is_one() -> None:
    faults = []
    for entry in everything().values():
        text = f"{entry.meaning} {entry.remedy}"
        # `run --append-new-lineage` is short for the same behind the program's name
        short = rf"`((?:{'|'.join(COMMANDS)}) (?:[a-z]+ )?(?:--?[a-z-]+|[A-Z]+)\b[^`]*)`"
        faults += [f"{entry.code}: {fault}" for fault in faults_in(re.sub(short, r"`scribengin \1`", text))]
    assert faults == []


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_one(page: str) -> None:
    faults = []
    for block in blocks_of(page):
        if block.language in SHELLS:
            for line in re.sub(r" *\\\n *", " ", block.text).splitlines():
                if called := re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(scribengin [a-z].*)", line):
                    faults += [f"{block}: {fault}" for fault in faults_in(re.sub(r"\s+#.*", "", called[1]))]
    if page not in GENERATED:
        prose = re.sub(r"^```.*?^```$", "", (Path(scribengin.__file__).parents[2] / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        faults += [f"{page}: {fault}" for fault in faults_in(" ".join(re.findall(r"`scribengin [^`]*`", prose)))]
    assert faults == []


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (("statsu",), 'there is no command "statsu"'),
        (("dead-letter", "lits", "shop"), 'there is no command "lits"'),
        (("offsets", "lits", "shop"), 'there is no command "lits"'),
        (("dead-letter",), "no command is named"),
        (("offsets",), "no command is named"),
        (("status", "shop", "--sate", "x"), "No such option"),
        (("status", "shop", "--state"), "requires an argument"),
        (("logs",), "is missing"),
        (("dead-letter", "export", "shop"), "is missing"),
        (("rollback", "shop", "3", "of", "it"), "taken for arguments: of it"),
        (("completion", "zsh3"), "is not one of"),
    ],
)
def test_a_command_that_is_none_is_found(command: tuple[str, ...], fault: str) -> None:
    assert fault in fault_of(Mention(command, whole=True))


@pytest.mark.parametrize(
    "command", ["ops shop", "operation list", "package shop", "ops cancel shop 3", "status", "logs -l team=a", "node --help", "help node"]
)
def test_a_command_that_is_one_is_taken(command: str) -> None:
    assert fault_of(Mention(tuple(command.split()), whole=True)) == ""


def test_a_problem_whose_remedy_is_no_command_is_seen_where_it_is_made() -> None:
    Problem("x", Place(""), "it failed", "mend it; then: scribengin resmue shop")
    (fault,) = take_faults()
    assert fault.startswith("scribengin resmue shop: there is no command")
