from __future__ import annotations

import json
import string

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from scribengin.spec.yaml_document import Document
from scribengin.spec.yaml_places import DocumentPlaces

_LETTERS = string.ascii_letters + "äöüßéλжשאあ漢字😀𝒳"


@st.composite
def texts_of_distinct_letters(draw: st.DrawFn) -> str:
    """Words of letters that stand once each, with blanks and line breaks between: the place of a letter is where it is found."""
    letters = draw(st.permutations(_LETTERS).map(lambda order: order[: draw(st.integers(1, 30))]))
    gaps = draw(st.lists(st.sampled_from(["", "", " ", "  ", "\n", "\n\n", "\n  ", "\t"]), min_size=len(letters), max_size=len(letters)))
    return "".join(letter + gap for letter, gap in zip(letters, gaps, strict=True))


@pytest.mark.parametrize("style", [None, "'", '"', "|", ">"])
@given(value=texts_of_distinct_letters(), width=st.sampled_from([5, 20, 1000]), unicode=st.booleans())
def test_every_letter_is_found_where_it_was_written(style: str | None, value: str, width: int, unicode: bool) -> None:
    text = yaml.dump({"k": {"v": value}}, default_style=style, width=width, allow_unicode=unicode, default_flow_style=False)
    # PyYAML folds a line that begins with blanks, which no reader puts together again
    assume(yaml.safe_load(text) == {"k": {"v": value}})
    document = Document(text, "f.yaml")
    assert document.problems == []
    places = DocumentPlaces(document)
    lines = text.split("\n")
    for offset, letter in enumerate(value):
        place = places.inside(("k", "v"), offset)
        if letter in _LETTERS and letter not in "kv":
            there = lines[place.line - 1][place.column - 1 :]
            assert there.startswith(
                (letter, json.dumps(letter)[1:5], f"\\x{ord(letter):02X}", f"\\U{ord(letter):08X}", f"\\u{ord(letter):04X}")
            )


@pytest.mark.parametrize(
    ("text", "offset", "place"),
    [
        ("v: 'a''b'", 2, "1:8"),
        ('v: "a\\tb\\u00e9c"', 4, "1:15"),
        ("v: >-\n  one\n  two\n\n  three", 4, "3:3"),
        ("v: >-\n  one\n  two\n\n  three", 8, "5:3"),
        ("v: |2\n    x\n  y\n", 2, "2:5"),
        ("v: |\n  SELECT *\n  FROM x\n", 9, "3:3"),
        ("v: one\n  two", 4, "2:3"),
        ("v: one\n\n  two", 3, "2:1"),
        ('v: "one\\\n  two"', 3, "2:3"),
    ],
)
def test_known_places(text: str, offset: int, place: str) -> None:
    places = DocumentPlaces(Document(text, "f.yaml"))
    assert str(places.inside(("v",), offset)) == f"f.yaml:{place}"


def test_a_path_that_leads_nowhere_gives_the_nearest_parent() -> None:
    places = DocumentPlaces(Document("a:\n  b: [x, y]\n", "f.yaml"))
    assert str(places.value(("a", "b", 1))) == "f.yaml:2:10"
    assert str(places.value(("a", "b", 7, "z"))) == "f.yaml:2:6"
    assert str(places.key(("a", "nothing"))) == "f.yaml:1:1"
    assert str(places.key(("a", "b"))) == "f.yaml:2:3"
    assert str(places.inside(("a", "c"), 3)) == "f.yaml:2:3"
