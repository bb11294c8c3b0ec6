"""A lease check that remembers whether the lease was found lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.errors import FencedError

if TYPE_CHECKING:
    from scribengin.state.lease import Right


class Heeded:
    """The lease, for one attempt to run a tier. `gone` is true once a check has found that it is not held: errors after that are caused by
    it alone. The lease may be held again a moment later, if a session that seemed expired turns out to live."""

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
