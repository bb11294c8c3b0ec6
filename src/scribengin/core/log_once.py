"""Reports a lasting condition once, and not each time that it is seen."""

from __future__ import annotations

_REMEMBERED = 1_000


class ReportedTexts:
    """Texts that were reported. After a thousand others, a text counts as new again."""

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def is_new(self, text: str) -> bool:
        """True if the text was not reported yet; from now on it counts as reported."""
        if text in self._texts:
            return False
        if len(self._texts) >= _REMEMBERED:
            self._texts.clear()
        self._texts.add(text)
        return True
