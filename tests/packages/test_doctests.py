from __future__ import annotations

import doctest

from scribengin.packages import package


def test_the_examples_in_the_docstrings_hold() -> None:
    found = doctest.testmod(package)
    assert (found.failed, found.attempted > 0) == (0, True)
