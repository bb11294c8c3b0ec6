"""A value that is used and never shown."""

from __future__ import annotations


class Secret:
    """A secret text. `str` and `repr` give `***`; `reference` is how the flow file writes it (`${secret:env/PASSWORD}`).

    It travels to executors with its value, by pickle; nothing else may write it.

    >>> password = Secret("hunter2", "${secret:env/PASSWORD}")
    >>> f"{password}", password.reference, password.reveal()
    ('***', '${secret:env/PASSWORD}', 'hunter2')
    """

    __slots__ = ("_value", "reference")

    def __init__(self, value: str, reference: str) -> None:
        self._value = value
        self.reference = reference

    def reveal(self) -> str:
        """The secret itself: hand it to the system that asks for it, and to nothing that prints or stores."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self._value, self.reference) == (other._value, other.reference)

    def __hash__(self) -> int:
        return hash(self.reference)
