"""What goes on for long is reported once, not each time that it is seen."""

from __future__ import annotations

_REMEMBERED = 1_000


class Said:
    """Texts that were reported; after a thousand others one may come again."""

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def is_new(self, text: str) -> bool:
        """Whether it was not told yet; from now on it was."""
        if text in self._texts:
            return False
        if len(self._texts) >= _REMEMBERED:
            self._texts.clear()
        self._texts.add(text)
        return True
