"""The folders of the state, `<root>/<flow>/<tier>/<query>/…`, and the installation that owns them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.core.errors import Refused, StateError
from scribengin.core.records import seal, unseal
from scribengin.core.remedies import start_over
from scribengin.core.remote import RemotePath
from scribengin.core.storage import make_folder, names_in, put_if_absent, read_or_none, replace
from scribengin.core.time_text import now_text
from scribengin.state.places import located

if TYPE_CHECKING:
    from pathlib import Path

_KIND, _FORMAT = "installation", 1


@dataclass(frozen=True, slots=True)
class QueryFolder:
    """The state of one query. Its parts belong together: a part that is copied or restored alone contradicts the others."""

    path: Path

    @property
    def name(self) -> str:
        """The query's name."""
        return self.path.name

    @property
    def checkpoint(self) -> Path:
        """The folder of Spark's checkpoint."""
        return self.path / "checkpoint"

    @property
    def carried(self) -> Path:
        """The checkpoint of another query, whose state this one is going to continue. It exists only while a move is in progress."""
        return self.path / "carried"

    @property
    def sources(self) -> Path:
        """The folder of the source logs, one for each source."""
        return self.path / "sources"

    @property
    def decisions(self) -> Path:
        """The folder of the decision records."""
        return self.path / "decisions"

    @property
    def intents(self) -> Path:
        """The folder of the intents of the current Batch, with a folder for each lineage."""
        return self.path / "intents"

    @property
    def dead(self) -> Path:
        """The folder of the dead letters."""
        return self.path / "dead"

    @property
    def replays(self) -> Path:
        """The folder of requests to replay dead letters, and of their dead letters."""
        return self.path / "replays"

    @property
    def trails(self) -> Path:
        """The folder of the provenance of sampled records."""
        return self.path / "trails"

    @property
    def ledger(self) -> Path:
        """The folder of data that is computed from the decisions and can be computed again."""
        return self.path / "ledger"

    def published(self, lineage: str, number: int) -> Path:
        """The empty file that shows that a Batch is published; see `ledger.note_published`."""
        return self.ledger / f"published-{lineage}-{number:010d}"

    def work(self, sink: str) -> Path:
        """The folder in which a sink stages its output."""
        return self.path / "sinks" / sink

    @property
    def lineage(self) -> Path:
        """The file of the lineage's record."""
        return self.path / "lineage.json"

    @property
    def rewind(self) -> Path:
        """The file with the lineage that a rewind is about to begin. It exists only while the rewind is in progress."""
        return self.path / "rewind.json"

    def past(self, lineage: str) -> QueryFolder:
        """The folder of a lineage that a rewind has ended: its record, decisions and dead letters."""
        return QueryFolder(self.path / "lineages" / lineage)


class StateFolder:
    """The state of one tier of a flow. `root` is `.scribengin` beside the flow, unless another folder is configured."""

    def __init__(self, root: Path, flow: str, tier: str = "main") -> None:
        self.root = root
        self.flow = flow
        self.tier = tier
        self.path = root / flow / tier

    @property
    def lock(self) -> Path:
        """The file whose lock is the lease."""
        return self.path / "lock"

    def query(self, name: str) -> QueryFolder:
        """The folder of a query, which need not exist yet."""
        return QueryFolder(self.path / name)

    def queries(self) -> list[QueryFolder]:
        """The queries that have state here, by name."""
        return [QueryFolder(self.path / name) for name in sorted(names_in(self.path)) if (self.path / name / "lineage.json").is_file()]

    def read_owner(self) -> str:
        """The id of this installation, which the first call creates.

        A folder that was moved stays the same installation. Raises Refused for a copy whose original still exists: both would continue from
        the same position and write everything twice.
        """
        return read_owner(self.root)


def read_owner(root: Path) -> str:
    """The id of the installation in a state folder; see `StateFolder.read_owner`."""
    make_folder(root)
    file = root / "installation.json"
    here = _place(root)
    data = read_or_none(file)
    if data is None:
        put_if_absent(file, seal(_KIND, _FORMAT, {"id": uuid4().hex, "created_at": now_text(), **here}))
        data = file.read_bytes()
    body = _body(data, file)
    known = {name: body[name] for name in here}
    if known != here:
        _check_copy(root, body)
        replace(file, seal(_KIND, _FORMAT, body | here))
    return str(body["id"])


def known_owner(root: Path) -> str:
    """The id of this installation; empty if no run has created one. Changes nothing. Raises Refused for a copy whose original
    still exists."""
    file = root / "installation.json"
    data = read_or_none(file)
    if data is None:
        return ""
    body = _body(data, file)
    if any(body[name] != value for name, value in _place(root).items()):
        _check_copy(root, body)
    return str(body["id"])


def _body(data: bytes, file: Path) -> dict[str, Any]:
    body: dict[str, Any] = unseal(data, _KIND, _FORMAT, file, without=f"give the sinks other places, and {start_over(outputs=False)}")
    return body


def _place(root: Path) -> dict[str, object]:
    if isinstance(root, RemotePath):  # it has no inode number there
        return {"path": str(root), "device": 0, "inode": 0}
    return {"path": str(root.resolve()), "device": root.stat().st_dev, "inode": root.stat().st_ino}


def renew_owner(root: Path) -> str:
    """Make this folder a new installation, as `reset` does with a copy, and return its id. Existing outputs belong to the old one."""
    (root / "installation.json").unlink(missing_ok=True)
    return read_owner(root)


def _check_copy(root: Path, body: dict[str, object]) -> None:
    """Raise Refused if the recorded path is another folder with the same installation: then this folder is a copy."""
    original = located(str(body["path"]))
    if not original.is_dir() or original.samefile(root):
        return
    data = read_or_none(original / "installation.json")
    if data is None:
        return
    try:
        other = unseal(data, _KIND, _FORMAT, original)
    except StateError:
        return
    if other["id"] == body["id"]:
        raise Refused(
            f"the state folder {root} is a copy of {original}, which still exists: both would write the same records",
            remedy=(
                f"run the flow from {original}, or move that folder away; or give the sinks of the copy "
                f"other places, and {start_over(outputs=False)}"
            ),
            code="state-copied",
        )
