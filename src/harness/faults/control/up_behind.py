"""`python -m harness.faults.control.up_behind PORT [3]` runs `scribengin server dev` with a master and workers that reach ZooKeeper through
the wire on PORT. If a number of servers follows, ZooKeeper has that many voting servers, and there is no wire. Nothing else is changed."""

from __future__ import annotations

import sys

from harness import ensemble
from scribengin.cli.main import main
from scribengin.embedded import zookeeper
from scribengin.hosts import up


class _Behind(zookeeper.ZooKeeper):
    @property
    def address(self) -> str:
        """The address of the wire."""
        return f"127.0.0.1:{sys.argv[1]}"


if __name__ == "__main__":
    up.ZooKeeper = _Behind if len(sys.argv) == 2 else ensemble.ZooKeeperEnsemble  # type: ignore[assignment, attr-defined]
    main(["server", "dev"])
