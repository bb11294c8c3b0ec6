from __future__ import annotations

import pytest
import yaml

from scribengin.spec import yaml_document as document_module
from scribengin.spec.yaml_document import Document, Mapping, Scalar, resolve_plain


@pytest.fixture(params=["libyaml", "python"])
def event_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML may be built without libyaml: the words must be the same."""
    if request.param == "libyaml" and not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(document_module, "_event_reader", yaml.cyaml.CParser if request.param == "libyaml" else yaml.Loader)


def test_libyaml_is_used_where_it_is_there() -> None:
    assert (document_module._event_reader is not yaml.Loader) == yaml.__with_libyaml__


def problems(text: str) -> list[str]:
    return [str(problem) for problem in Document(text, "f.yaml").problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("n", "n"),
        ("on", "on"),
        ("Off", "Off"),
        ("0o17", 15),
        ("0x1F", 31),
        ("017", 17),
        ("12:30", "12:30"),
        ("1:30:00", "1:30:00"),
        ("2026-01-01", "2026-01-01"),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("TRUE", True),
        ("tRue", "tRue"),
        ("", None),
        ("~", None),
        ("Null", None),
        ("-.inf", float("-inf")),
        ("0b11", "0b11"),
        ("+12", 12),
        ("-", "-"),
        (".", "."),
    ],
)
def test_plain_scalars_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    assert resolve_plain(text) == value
    assert type(resolve_plain(text)) is type(value)


@pytest.mark.usefixtures("event_reader")
@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        ("a:\n\tb: 1\n", "2:1", "replace the tab"),
        ("a: 1\n\tb: 2\n", "2:1", "replace the tab"),
        ("a: 1\nb:2\nc: 3\n", "2:3", "write a space after the colon"),
        ("a:1\nb: 2\n", "1:3", "write a space after the colon"),
        ("a: b: c\n", "1:5", "quote the value"),
        ("a: 'x\nb: 2\n", "1:4", "close it"),
        ('a: "x\nb: 2\n', "1:4", "close it"),
        ('a: "\\q"\n', "1:5", r"write \\ for a backslash"),
        ("a: {b: 1\nc: 2\n", "1:4", "close it with }"),
        ("a: [b, c\nd: 1\n", "1:4", "close it with ]"),
        ("a: {b: 1]}\n", "1:9", "close with }"),
        ("a: @foo\n", "1:4", "quote the value"),
        ("a: 1\n b: 2\n", "2:3", "indent it like"),
        ("a:\n  b: 1\n c: 2\n", "3:2", "indent all keys"),
        ("a: 'it's'\n", "1:8", "double a quote"),
        ("a: > 5\n", "1:4", "quote the value if"),
        ("a: - b\n", "1:4", "on its own line"),
        ("- a\nb: 1\n", "2:1", "remove the one in column 1 there"),
        ("- a\n'b': 1\n", "2:1", "begin each item with -"),
        ("a: 1\n---\nb: 1\n", "2:1", "one flow per file"),
        ("a: *x\n", "1:4", "quote the text"),
        ("a: &x [*x]\n", "1:8", "quote the text"),
        ("a: !foo 1\n", "1:4", "take it out"),
        ("<<: {a: 1}\n", "1:1", "write the keys out"),
        ("? [a]\n: b\n", "1:3", "quote it"),
        ("a: \x00b\n", "1:4", "take it out"),
        ("a: \ud800\n", "1:4", "take it out"),
        ("}\n", "1:1", "quote it"),
    ],
)
def test_bad_yaml_is_one_problem_with_its_place_and_a_remedy(text: str, place: str, remedy: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"f.yaml:{place}: ")
    assert remedy in problem


@pytest.mark.usefixtures("event_reader")
def test_columns_count_characters_not_bytes() -> None:
    (problem,) = problems('ä: "öü" x\n')
    assert problem.startswith("f.yaml:1:9: ")


@pytest.mark.usefixtures("event_reader")
def test_a_byte_order_mark_moves_no_column() -> None:
    assert problems("\ufeffa: @\n") == problems("a: @\n")


@pytest.mark.usefixtures("event_reader")
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_lines_may_end_as_on_windows(ending: str) -> None:
    document = Document(ending.join(["a: 1", "b: x #y", ""]), "f.yaml")
    assert [str(problem.place) for problem in document.problems] == ["f.yaml:2:6"]


@pytest.mark.usefixtures("event_reader")
def test_a_key_that_stands_twice_is_told_with_the_first_place() -> None:
    (problem,) = problems("a: 1\nb: 2\na: 3\n")
    assert problem == 'f.yaml:3:1: duplicate key "a"; first defined in line 1; keep one of the two [duplicate-key]'


@pytest.mark.usefixtures("event_reader")
def test_a_comment_after_a_plain_text_is_a_warning() -> None:
    (problem,) = problems("a: text LIKE x #tag\n")
    assert problem.startswith("f.yaml:1:16: warning: ")


@pytest.mark.parametrize(
    "text", ['a: "b" # c\n', "a: b\n# c\n", "a: b#c\n", "a: 5 # c\n", "a: [b] # c\n", "x-a: b # c\n", "a: # c\n  b: 1\n", "a: b # c\n"]
)
def test_a_comment_that_cuts_no_text_is_none(text: str) -> None:
    assert problems(text) == []


def test_an_alias_is_what_it_refers_to() -> None:
    root = Document("x-a: &a {b: 1}\nc: *a\n", "f.yaml").root
    assert isinstance(root, Mapping)
    assert root.entries["c"][1] is root.entries["x-a"][1]


@pytest.mark.usefixtures("event_reader")
def test_deep_nesting_is_told_and_does_not_end_the_program() -> None:
    (problem,) = problems("[" * 5000)
    assert "levels deep" in problem


def test_an_empty_file_has_no_root() -> None:
    assert Document("# nothing\n", "f.yaml").root is None


@pytest.mark.usefixtures("event_reader")
def test_offsets_are_those_of_the_text() -> None:
    text = "a: 'x y'\n"
    root = Document(text, "f.yaml").root
    assert isinstance(root, Mapping)
    scalar = root.entries["a"][1]
    assert isinstance(scalar, Scalar)
    assert text[scalar.start : scalar.end] == "'x y'"
