"""How a conformance suite says what is wrong."""

from __future__ import annotations


def must(holds: bool, sentence: str) -> None:
    """Raises AssertionError with the sentence of the contract that does not hold."""
    if not holds:
        raise AssertionError(f"the contract is broken: {sentence}")
