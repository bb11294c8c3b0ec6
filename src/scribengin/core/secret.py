"""A value that is used and never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault, Refused

if TYPE_CHECKING:
    from pathlib import Path


class Secret:
    """A secret text. `str` and `repr` give `***`; `reference` is how the flow file writes it (`${secret:env/PASSWORD}`).

    Pickle includes the value, so that it reaches executors; nothing else may write it.

    >>> password = Secret("hunter2", "${secret:env/PASSWORD}")
    >>> f"{password}", password.reference, password.reveal()
    ('***', '${secret:env/PASSWORD}', 'hunter2')
    """

    __slots__ = ("_value", "reference")

    def __init__(self, value: str, reference: str) -> None:
        self._value = value
        self.reference = reference

    def reveal(self) -> str:
        """The secret itself. Pass it only to the system that requires it, and never to code that prints or stores it."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self._value, self.reference) == (other._value, other.reference)

    def __hash__(self) -> int:
        return hash(self.reference)


def read_secret(file: Path) -> Secret:
    """The content of a file that only its owner may read, without surrounding blanks. Raises EnvironmentFault if it cannot be read, and
    Refused if others may read it or it is empty."""
    try:
        text = file.read_text(encoding="utf-8").strip()
        others = file.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentFault(f"{file} cannot be read: {error}", remedy="name a text file that contains the secret") from error
    if others:
        raise Refused(f"{file} holds a secret, and other users of this machine can read it", remedy=f"chmod 600 {file}", code="file-open")
    if not text:
        raise Refused(f"{file} is empty", remedy="write the secret into the file", code="registry-login")
    return Secret(text, str(file))
