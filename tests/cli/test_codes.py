"""Every code of the source is explained, once, and in the terminal too."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import scribengin
from scribengin.cli.code_catalog import CATALOG, FAMILY, entry_of, everything
from scribengin.cli.code_catalog.reasons import REASONS, Reason
from scribengin.cli.main import main
from scribengin.plan import problem_catalog
from scribengin.plan.validate import validate_file
from scribengin.spec import problems
from scribengin.spec.problem_entry import ProblemEntry, example_flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STEPS = """
from scribengin import frame, to


def one(row):
    return row


def two(row, more):
    return row


def marks(row) -> bool:
    return bool(row.pop("id"))


value = 3


@frame
def whole(df):
    return df


def sorts(row):
    return to("left", row)
"""
ROOT = Path(__file__).parents[2]
_NOT_VALID = re.compile(r"(?<!there )\b(is|are) no (?!longer\b)\w+|\b(is|are) none\b|\bstands? (there|twice)\b", re.IGNORECASE)
MADE_OF_A_TYPE = {"objects-url", "hdfs-url"}
"""codes that the source makes of the type of a node"""


def test_every_code_of_the_source_is_in_a_catalog() -> None:
    known = everything()
    lacking = {code: place for code, place in source_codes().items() if code not in known}
    assert not lacking, "write an entry: cli/code_catalog; for codes of a flow file spec/problems or plan/problem_catalog"
    assert len(source_codes()) > 450  # the search finds them


def test_every_entry_is_of_a_code_that_the_source_has() -> None:
    folder = Path(scribengin.__file__).parent
    text = "".join(
        file.read_text() for file in folder.rglob("*.py") if "catalog" not in file.parent.name and not file.stem.endswith("problems")
    )
    for entry in CATALOG:
        begin = entry.code.removesuffix("*")
        assert f'"{entry.code}"' in text or (entry.code.endswith(FAMILY) and f'"{begin}' in text) or entry.code in MADE_OF_A_TYPE, (
            entry.code
        )


def test_no_code_has_two_entries_and_each_entry_says_something() -> None:
    entries = [*problems.CATALOG, *problem_catalog.CATALOG, *CATALOG]
    assert len({entry.code for entry in entries}) == len(entries)
    for entry in entries:
        for text in (entry.meaning, entry.remedy):
            assert re.match(r"[A-Z`.\d<-]", text), (entry.code, text)
            assert text.endswith((".", "?", "`")), (entry.code, text)
        assert not entry.title.endswith("."), entry.code
        assert "--yes`" not in entry.remedy or "confirm" in entry.remedy, entry.code


TAKES_MORE_THAN_YAML = {
    "app-part",
    "delivery-unsupported",
    "flow-file-missing",
    "flow-file-python",
    "fmt-refused",
    "function-nameless",
    "keyring",
    "not-executed",
    "sink-left-out",
    "test-file",
}
"""codes of flow files that no text of one file shows: this may only get shorter"""
OF_FLOW_FILES = [*problems.CATALOG, *problem_catalog.CATALOG]


def test_codes_of_flow_files_have_a_wrong_and_a_right_example() -> None:
    assert {entry.code for entry in OF_FLOW_FILES if not entry.example} == TAKES_MORE_THAN_YAML
    assert [entry.code for entry in OF_FLOW_FILES if entry.example and not entry.right] == []


@pytest.mark.parametrize("entry", [entry for entry in OF_FLOW_FILES if entry.example], ids=lambda entry: entry.code)
def test_the_right_example_has_no_problem_and_the_wrong_one_has_its_own(entry: ProblemEntry, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "broken.py").write_text("def f(row:\n")
    file = tmp_path / "flow.yaml"
    file.write_text(example_flow(entry))
    assert entry.code in {problem.code for problem in validate_file(file, {"HOME": "c2VjcmV0"}, tests=True)[1]}
    file.write_text(example_flow(entry, entry.right))
    assert [str(problem) for problem in validate_file(file, {"HOME": "c2VjcmV0"}, tests=True)[1]] == []


def test_the_tests_that_entries_name_are_there_and_meet_the_code() -> None:
    named = [entry for entry in CATALOG if entry.shown_by]
    assert len(named) > 200
    for entry in named:
        file, _, name = entry.shown_by.partition("::")
        text = (ROOT / file).read_text()
        begin = text.index(f"def {name}(")
        before = text.rfind("\n\n\n", 0, begin)
        behind = text.find("\n\n\n", begin)
        assert f'"{entry.code}"' in text[before : behind if behind > 0 else None], entry.code


@pytest.mark.parametrize(
    "entry", [*everything().values(), *REASONS], ids=lambda entry: getattr(entry, "code", "") or f"reason-{entry.name}"
)
def test_an_entry_says_what_is_not_valid_in_standard_words(entry: ProblemEntry | Reason) -> None:
    for text in (entry.title, entry.meaning, entry.remedy):
        assert not _NOT_VALID.search(text), f"say `is not a valid X`, `is not one of`, `is duplicated`, `exists`: {text}"


def test_explain_prints_an_entry(command) -> None:
    ended = command("explain", "[unknown-type]")
    assert ended.status == 0
    assert "unknown-type (error): A type that does not exist" in ended.out
    assert "What to do:" in ended.out
    assert "Wrong:\n  sources:\n" in ended.out
    result = command("explain", "state-changed", "--json").object["result"]
    assert list(result) == ["code", "severity", "title", "meaning", "remedy", "wrong", "right"]
    assert (result["code"], result["wrong"], result["right"]) == ("state-changed", None, None)
    assert command("explain", "spark-cast-invalid-input", "--json").object["result"]["code"] == "spark-*"


def test_explain_of_no_code_names_the_nearest(command) -> None:
    ended = command("explain", "output-forein", "--json")
    assert (ended.status, ended.codes) == (2, ["code-unknown"])
    assert "output-foreign" in ended.object["problems"][0]["remedy"]


@pytest.mark.parametrize("file", ["shop.yaml", "flow.yml"])
def test_a_name_that_is_meant_for_a_file_of_this_folder_is_told_which(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(file).write_text("version: 1\nname: shop  # of the shop\n")
    Path("other.yaml").write_text("version: 1\nname: other\n")
    for verb in ("status", "audit"):
        with pytest.raises(SystemExit):
            main([verb, "shop", "--home", "home"])
        assert f"if you mean the file, write {file}; otherwise start it: scribengin server dev" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["status", "ship", "--home", "home"])
    assert "file" not in capsys.readouterr().err


@pytest.mark.parametrize("words", ["pause", "history", "scale", "limit", "logs", "offsets rewind --to-batch 0", "alerts test", "delete"])
def test_a_file_is_refused_where_a_name_is_expected(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text("version: 1\nname: shop\n")
    with pytest.raises(SystemExit) as left:
        main([*words.split(), "orders.yaml", "--home", "home"])
    assert left.value.code == 2
    assert "orders.yaml is a file; this command takes the name of a submitted flow: shop" in capsys.readouterr().err


@pytest.mark.parametrize("code", ["state-changed", "output-foreign", "already-running", "not-up", "flow-name", "state-missing", "bug"])
def test_what_a_newcomer_meets_is_explained(code: str) -> None:
    assert entry_of(code) is not None


def test_every_reason_of_a_dead_letter_is_explained(command) -> None:
    names = [reason.name for reason in REASONS]
    lacking = {reason: place for reason, place in source_reasons().items() if reason not in names}
    assert not lacking, "write an entry: cli/code_catalog/reasons.py"
    assert len(source_reasons()) > 30  # the search finds them
    assert [name for name in names if name not in source_reasons()] == []
    assert names == sorted(set(names))
    for reason in REASONS:
        assert all((reason.title, reason.meaning, reason.remedy, reason.example))


def test_explain_prints_a_reason_and_both_where_a_name_is_a_code_too(command) -> None:
    ended = command("explain", "wrong-type")
    assert "wrong-type (a reason of dead letters): The value is of another kind than the column" in ended.out
    assert "What to do: " in ended.out
    assert "\nExample:\n  {" in ended.out
    assert list(command("explain", "late", "--json").object["result"]) == ["reason", "title", "meaning", "remedy", "example"]
    both = command("explain", "out-of-range", "--json").object["result"]
    assert (both["code"], both["dead_letters"]["reason"]) == ("out-of-range", "out-of-range")
    assert "out-of-range (a reason of dead letters)" in command("explain", "out-of-range").out
    assert "malformed" in command("explain", "malformd", "--json").object["problems"][0]["remedy"]


# --- what the source says, read as text ---

_CARRY = {"reason", "REFUSED", "LATE", "AHEAD"}
"""names whose texts are reasons"""
_NO_LETTERS = {
    "Which",  # a filter
    "MemberSeen",
    "Out",
    "_State",
    "Unread",
    "PreviewedRow",
    "failed",
}
"""calls with a `reason` that is none of a dead letter"""
_NEVER_DIES = {"unknown", "overloaded", "no text"}
"""of rows that a test expects; of rows that a store is to take again; of an error of a client"""


@cache
def source_reasons() -> dict[str, str]:
    """Reason → a place where it stands."""
    folder = Path(scribengin.__file__).parent
    found: dict[str, str] = {}
    trees = {
        file: list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        for part in ("formats", "spark", "connectors", "state", "local")
        for file in sorted((folder / part).rglob("*.py"))
    }
    places = _reason_places(trees.values())
    for file, tree in trees.items():
        for node in tree:
            for value in _reason_values(node, places):
                for text in (each.value for each in ast.walk(value) if isinstance(each, ast.Constant)):
                    if isinstance(text, str) and _CODE.match(text) and text not in _NEVER_DIES:
                        found.setdefault(text, f"{file.relative_to(folder.parent)}:{getattr(node, 'lineno', 0)}")
    return found


def _reason_places(trees: Iterable[list[ast.AST]]) -> dict[str, int]:
    """Name of a class or function that takes a reason → where it stands among the arguments."""
    found: dict[str, int] = {}
    for node in (node for tree in trees for node in tree):
        if isinstance(node, ast.ClassDef):
            names = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
            init = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
            names = names if init is None else [argument.arg for argument in init.args.args[1:]]
        elif isinstance(node, ast.FunctionDef) and node.name != "__init__":
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
        else:
            continue
        if "reason" in names and node.name not in _NO_LETTERS:
            found[node.name] = names.index("reason")
    return found


def _reason_values(node: ast.AST, places: dict[str, int]) -> Iterator[ast.expr]:
    match node:
        case ast.Call():
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            at = places.get(name)
            if at is not None and len(node.args) > at and not isinstance(node.args[at], ast.Call):
                yield from _outcomes(node.args[at])
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in _CARRY:
            yield from _outcomes(value)
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            for each, value in zip(names, values, strict=True):
                if isinstance(each, ast.Name) and each.id == "reason":
                    yield from _outcomes(value)
        case ast.FunctionDef() if "(reason, message)" in (ast.get_docstring(node) or "") or ", reason, message)" in (
            ast.get_docstring(node) or ""
        ):
            for each in ast.walk(node):
                if isinstance(each, ast.Return):
                    for value in [each.value.body, each.value.orelse] if isinstance(each.value, ast.IfExp) else [each.value]:
                        if isinstance(value, ast.Tuple) and len(value.elts) > 1:
                            yield from _outcomes(value.elts[-2])


def _outcomes(value: ast.expr) -> Iterator[ast.expr]:
    """The values that an expression may have, without what decides between them."""
    if isinstance(value, ast.IfExp):
        yield from _outcomes(value.body)
        yield from _outcomes(value.orelse)
    elif isinstance(value, ast.Constant):
        yield value


_CODE = re.compile(r"[a-z]+(-[a-z0-9]+)*\Z")
_MAY_HAVE = re.compile(r"\bcode\b|Codes\(|_REMEDIES|_LASTING|(?:\.error|roblem|ault|_error|_warn|_failed)\w*\(")
"""a file without it has no code: most have none"""
_TABLES = {"_REMEDIES", "_LASTING", "_ANSWERS"}
"""tables of what servers say, with our code for each"""


@cache
def source_codes() -> dict[str, str]:
    """Code → a place where it stands; one that is made of a part ends in `-*`."""
    folder = Path(scribengin.__file__).parent
    files = [file for file in sorted(folder.rglob("*.py")) if "catalog" not in file.parent.name]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    trees = {file: list(ast.walk(ast.parse(text))) for file, text in texts.items() if _MAY_HAVE.search(text)}
    places = _parameters(trees.values())
    found: dict[str, str] = {}
    for file, tree in trees.items():
        constants = _constants(tree)
        for node, value, sure in _values(tree, places):
            for code in _texts(value, constants):
                if _CODE.match(code.removesuffix("-*")) and (sure or "-" in code):
                    found.setdefault(code, f"{file.relative_to(folder.parent)}:{node.lineno}")
    return found


def _parameters(trees: Iterable[list[ast.AST]]) -> dict[str, set[int]]:
    """Name of a function, method or dataclass → where its `code` stands among the arguments."""
    found: dict[str, set[int]] = {}
    for tree in trees:
        for node in tree:
            if isinstance(node, ast.FunctionDef):
                names = [argument.arg for argument in node.args.args if argument.arg not in ("self", "cls")]
            elif isinstance(node, ast.ClassDef):
                names = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
            else:
                continue
            if "code" in names:
                found.setdefault(node.name, set()).add(names.index("code"))
    return found


def _values(tree: list[ast.AST], places: dict[str, set[int]]) -> Iterator[tuple[ast.stmt | ast.expr, ast.expr, bool]]:
    """(where, what may be a code, whether it certainly is one)"""
    for node in tree:
        match node:
            case ast.Call():
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                yield from ((node, each.value, True) for each in node.keywords if each.arg == "code")
                yield from ((node, node.args[index], name == "Problem") for index in places.get(name, ()) if index < len(node.args))
                if name == "Codes":
                    yield from ((node, each.value, True) for each in node.keywords)
            case ast.Dict():
                yield from (
                    (node, value, True) for key, value in zip(node.keys, node.values, strict=True) if getattr(key, "value", None) == "code"
                )
            case ast.ClassDef():
                for each in node.body:
                    if isinstance(each, ast.Assign) and any(
                        isinstance(target, ast.Name) and target.id == "code" for target in each.targets
                    ):
                        yield each, each.value, True
            case ast.Assign() if any(isinstance(target, ast.Name) and target.id in _TABLES for target in node.targets):
                yield from ((node, each, False) for each in ast.walk(node.value) if isinstance(each, ast.Constant))
            case ast.FunctionDef(name="_code" | "_code_of"):
                yield from ((each, each.value, False) for each in ast.walk(node) if isinstance(each, ast.Return) and each.value is not None)
            case _:
                pass


def _texts(value: ast.expr, constants: dict[str, str]) -> list[str]:
    match value:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp():
            return [*_texts(value.body, constants), *_texts(value.orelse, constants)]
        case ast.Name() if value.id in constants:
            return [constants[value.id]]
        case ast.JoinedStr(values=[ast.Constant(value=str(begin)), *_]) if begin.endswith("-"):
            return [f"{begin}*"]
        case ast.BinOp(left=ast.Constant(value=str(begin))) if begin.endswith("-"):
            return [f"{begin}*"]
    return []


def _constants(tree: list[ast.AST]) -> dict[str, str]:
    """Names of the module that are a text."""
    return {
        target.id: node.value.value
        for node in tree
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
