"""Words that texts for people do not use, and what they use instead: the rules of docs/glossary.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_GLOSSARY = Path(__file__).parents[1] / "docs" / "glossary.toml"
RULES = tuple(tomllib.loads(_GLOSSARY.read_text(encoding="utf-8"))["rule"])
"""each with `pattern`, `words` (examples of it), `instead`, and `only` ("help") if it is for help texts alone"""


def faults_of(text: str, kind: str = "help") -> list[str]:
    """Words in a text that it should not use, as `found: replacement`.

    Args:
        text: what a person reads.
        kind: "help" for help texts and messages, which no rule exempts; "page" for the prose of a page.
    """
    rules = [rule for rule in RULES if rule.get("only", kind) == kind]
    found = ((re.search(rule["pattern"], text, re.IGNORECASE | re.MULTILINE), rule["instead"]) for rule in rules)
    return [f'"{match[0]}": write {instead}' for match, instead in found if match is not None]
