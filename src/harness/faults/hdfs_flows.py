"""The flows with HDFS folders as sinks; the NameNode and the DataNode are struck in turn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.faults.flows import DECISIVE, KINDS
from harness.faults.grounds import Ground, store_places
from harness.faults.object_flows import BY_MANIFEST_DECISIVE, ObjectFlow, look_on, rolled_places
from harness.remote_places import address, options
from scribengin.connectors.hdfs.path import HdfsPath
from scribengin.core.faults import ELSEWHERE_POINTS
from scribengin.embedded.hdfs import Hdfs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from harness.faults.outcomes import Life
    from scribengin.connectors.objects.address import ObjectsAddress

ROUTE, ALL_THERE, ROLLED = "files-to-hdfs", "files-to-hdfs-with-state", "files-to-hdfs-rolled"


class StruckHdfs(Hdfs):
    """An HDFS of which the NameNode is killed first, then the DataNode, and so on."""

    _next_is_name = True

    def kill(self) -> None:
        """Kill one of the two."""
        struck = self.name_node if self._next_is_name else self.data_node
        self._next_is_name = not self._next_is_name
        struck.kill()


@dataclass(kw_only=True)
class HdfsFlow(ObjectFlow):
    """An ObjectFlow whose readers list folders."""

    server: Hdfs  # type: ignore[assignment]

    @property
    def listed(self) -> bool:
        """True: readers list."""
        return True

    @property
    def state(self) -> Path:
        """The state folder: next to the flow, or in HDFS."""
        return HdfsPath.of(f"{self.server.uri}/state") if self.route == ALL_THERE else super().state

    @property
    def decisive(self) -> tuple[str, ...]:
        """The same as for files; merged files are not renamed with their Batch."""
        return BY_MANIFEST_DECISIVE if self.route == ROLLED else DECISIVE

    def place(self, sink: str) -> ObjectsAddress:
        """The address of a sink's folder."""
        return address(self.server, sink)

    def watch_program(self, sink: str) -> Sequence[str]:
        """See StoreFlow: this module."""
        return __name__, str(self.server.folder), sink, "listed"

    def _output(self, sink: str) -> str:
        by = ", partition_by: [bucket]" if self.partitioned else ""
        return f'type: hdfs, url: "{options(self.server, sink)["url"]}", format: json{by}{self.roll}'


def _flow(life: Life, folder: Path, stack: ExitStack) -> HdfsFlow:
    server = stack.enter_context(StruckHdfs(folder / "server"))
    return HdfsFlow(folder, life.kind, "json", life.partitioned, route=life.format, server=server)


_PLACES = store_places(DECISIVE, lacks=())
_STATE = tuple(point for point in ELSEWHERE_POINTS if not point.startswith("lease."))
_ALL_THERE = {way: (*points, *_STATE) for way, points in _PLACES.items() if way in ("kill", "die", "recovery", "server")}
"""for a state in HDFS; without ways that suspend a driver, which still renews its lease, and without ways that move or copy the state's
files"""
HDFS_ROLLED = Ground("HDFS, merged", (ROLLED,), KINDS, BY_MANIFEST_DECISIVE, {ROLLED: rolled_places()}, _flow, (False, True))
HDFS = Ground("HDFS", (ROUTE, ALL_THERE), KINDS, DECISIVE, {ROUTE: _PLACES, ALL_THERE: _ALL_THERE}, _flow, (False, True))


def main(folder: str, sink: str, *flags: str) -> None:
    """Read until the standard input closes, waiting while the server is unavailable; then print one Sight."""
    look_on(address(Hdfs(Path(folder)), sink), flags)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
