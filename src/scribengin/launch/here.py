"""What launchers whose workers are processes of this machine have in common: all verbs but `start` are those of `Children`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.launch.children import LOG_BYTES, ORPHAN_GRACE_S, Children

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.launch.contract import ObservedWorker


class LauncherHere:
    """A launcher without `start`, which sets the Spark settings. `Children` manages the workers."""

    def __init__(self, folder: Path, *, log_bytes: int = LOG_BYTES, orphan_grace_s: float = ORPHAN_GRACE_S) -> None:
        self._children = Children(folder, log_bytes=log_bytes, orphan_grace_s=orphan_grace_s)

    def stop(self, worker: str, grace_s: float) -> None:
        """See `Launcher`."""
        self._children.stop(worker, grace_s)

    def kill(self, worker: str) -> None:
        """See `Launcher`."""
        self._children.kill(worker)

    def observe(self) -> list[ObservedWorker]:
        """See `Launcher`; looks only at this machine."""
        return self._children.observe()

    def logs(self, worker: str) -> tuple[str, ...]:
        """Paths on this machine."""
        return self._children.logs(worker)

    def forget(self, worker: str) -> None:
        """See `Launcher`."""
        self._children.forget(worker)

    def on_end(self, wake: Callable[[], None]) -> None:
        """As `TellsEnds` says."""
        self._children.on_end(wake)

    def close(self) -> None:
        """See `Launcher`."""
        self._children.close()
