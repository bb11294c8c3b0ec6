"""The compactor while a flow runs: in a thread of its own, for the folders without a maintenance owner; and once more when a query ends.

A query that ends leaves no committed output hidden, even if another host maintains the folder: a caller that checks the result of a run,
and a reader of its output, find all of it. This applies to `--once`, and to a flow that was stopped or drained, because no process may be
left that publishes the rest.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.connectors.files.maintenance import keep_folder, roll_folder
from scribengin.connectors.files.retention import RetentionSettings
from scribengin.connectors.files.sink_folders import lineages_in
from scribengin.core.errors import EnvironmentFault, ScribenginError, StateError, text_of
from scribengin.core.remedies import flow_command
from scribengin.plan.maintained_places import kept_folders, kept_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from scribengin.connectors.objects.maintenance import StoreKeeper
    from scribengin.spec.model import Flow


EVERY_S = 5.0
"""seconds between two checks of a place, if they cost little"""
_SHARE = 20.0
"""a check that took a second of processor time is followed by so many seconds without one, unless segments have waited long enough"""
_LEAST_S = 0.2
_AGAIN_S, _AGAIN_AT_MOST_S = 5.0, 300.0
"""seconds until a failed compaction run is repeated: doubled each time, up to the second value, because each attempt may fill the disk for
a while"""


def _may() -> None:
    """Allow the maintenance: the process that runs the flow always may."""


def folders_with_settings(folders: Collection[str]) -> list[Path]:
    """Those of the folders that have settings for their maintenance, of any lineage."""
    return [Path(folder) for folder in folders if any(RetentionSettings.read(each) is not None for each in lineages_in(Path(folder)))]


@dataclass(slots=True)
class BackgroundCompaction:
    """The compaction of one flow's output in this process. `say` receives, once each, why a folder could not be maintained. Folders without
    settings are skipped; that is checked each time, because a group's member may be claimed late."""

    folders: Sequence[Path]
    say: Callable[[str], None]
    stores: Sequence[StoreKeeper] = ()
    _said: set[str] = field(default_factory=set)
    _failed: dict[str, int] = field(default_factory=dict)
    """folder, or place in a store → failures since the last success"""
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Maintain the folders until `stop` is called."""
        if self.folders or self.stores:
            self._thread = threading.Thread(target=self._run, name="roller")
            self._thread.start()

    def stop(self) -> None:
        """Stop after the current compaction run."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        kept: list[Path | StoreKeeper] = [*self.folders, *self.stores]
        due_s = [0.0] * len(kept)
        wait_s = _LEAST_S
        while not self._over.wait(wait_s):
            for nth, place in enumerate(kept):
                if due_s[nth] <= time.monotonic():
                    due_s[nth] = self._turn(place) + time.monotonic()
            wait_s = max(0.0, min(due_s) - time.monotonic())

    def _turn(self, place: Path | StoreKeeper) -> float:
        """Maintain one place; returns the seconds until it is to be checked again."""
        begun_s = time.thread_time()
        folder = str(place)
        due_s, every_s = None, EVERY_S
        try:
            if not isinstance(place, Path):
                due_s, every_s = place.keep().due_s, place.look_s
            elif folders_with_settings([folder]):
                due_s = keep_folder(place, _may).due_s
        except Exception as error:  # an error in one folder must not stop the others; it is tried again
            text = f"{folder} is not maintained: {text_of(error)}"
            if text not in self._said:
                self._said.add(text)
                self.say(text)
            failed = self._failed[folder] = self._failed.get(folder, 0) + 1
            return min(_AGAIN_S * 2.0 ** min(failed - 1, 16), _AGAIN_AT_MOST_S)
        self._failed.pop(folder, None)
        wait_s = max(every_s, _SHARE * (time.thread_time() - begun_s))
        return wait_s if due_s is None else min(max(due_s, _LEAST_S), wait_s)


def show_all(flow: Flow, sinks: Collection[str]) -> ScribenginError | None:
    """Make all committed output of these sinks visible. Returns the error that prevents it, or None."""
    try:
        folders = kept_folders(flow, sinks)
        if not any(
            "roll" in node.options for id_, node in flow.sinks.items() if id_ in sinks
        ):  # an unavailable member of a group has been reported, and hides no output
            folders = tuple(folder for folder in folders if Path(folder).is_dir())
        for folder in folders_with_settings(folders):
            roll_folder(folder, _may, flush=True)
        for place in kept_stores(flow, sinks):
            if place.hides or place.closes:
                place.keep(flush=place.hides)
    except ScribenginError as error:
        return error
    except OSError as error:
        return EnvironmentFault(f"not all committed output is visible: {error}", remedy="fix the cause, then run the flow again")
    except Exception as error:
        return StateError(
            f"not all committed output is visible: {type(error).__name__}: {error}",
            remedy=f"nothing is lost; to check the output: {flow_command('audit')}",
        )
    return None
