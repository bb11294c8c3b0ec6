"""A right that remembers whether it was found gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.errors import FencedError

if TYPE_CHECKING:
    from scribengin.state.lease import Right


class Heeded:
    """The right, for one attempt to run a tier. `gone` is true once a look has found that it is not held: what fails then has failed for
    that alone. The right may be held again a moment later, when a session that seemed over turns out to have lived on."""

    def __init__(self, right: Right) -> None:
        self.gone = False
        self.right = right

    @property
    def path(self) -> str:
        """See `Right`."""
        return self.right.path

    def check(self) -> None:
        """See `Right`."""
        try:
            self.right.check()
        except FencedError:
            self.gone = True
            raise
