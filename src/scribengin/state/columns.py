"""The columns that a source has learned under `evolve: add`: one record for each column, written if absent, beside the flow's state.

They belong to the source and not to a lineage: they stay the same after a rewind, and if another query reads the source.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from scribengin.core.errors import ColumnsOutdated
from scribengin.core.records import seal, unseal
from scribengin.core.storage import make_folder, names_in, put_if_absent, read_or_none, replace
from scribengin.core.types import Field, SchemaSyntaxError, parse_schema

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from scribengin.core.types import Schema
    from scribengin.formats.notice import FormatNotice


# Columns that an operator has accepted although a sink's folder has other ones. They are kept beside the flow's state; the newest
# acceptance of each sink counts. It applies only to these columns in that folder: other columns, and another folder, are refused again.


_ACCEPTED = "_accepted"
_ACCEPTED_KIND, _ACCEPTED_FORMAT = "accepted-columns", 1
_WORD = "accepted-word"


@dataclass(frozen=True, slots=True)
class ColumnsAcceptance:
    """An operator's acceptance of the present columns, given once for all sinks of a flow. `at`, in ISO 8601, identifies it."""

    at: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The accepted columns of a sink. `columns` is the schema of all columns that the sink writes from then on; `instead` are the
    differences, one sentence each."""

    sink: str
    columns: str
    instead: tuple[str, ...]
    at: str
    by: str
    path: str
    """the sink's path as the flow has it: another folder has other files"""


def accept(root: Path, flow: str, accepted: Accepted) -> None:
    """Store the acceptance durably. It replaces the earlier one for that sink."""
    replace(_sink(root, flow, accepted.sink), seal(_ACCEPTED_KIND, _ACCEPTED_FORMAT, asdict(accepted)))


def read_accepted(root: Path, flow: str, sinks: Iterable[str]) -> dict[str, Accepted]:
    """Sink → its acceptance, for those of the sinks that have one. Raises StateError for a record that is damaged."""
    found = {}
    for sink in sinks:
        path = _sink(root, flow, sink)
        data = read_or_none(path)
        if data is not None:
            body = unseal(data, _ACCEPTED_KIND, _ACCEPTED_FORMAT, path)
            found[sink] = Accepted(body["sink"], body["columns"], tuple(body["instead"]), body["at"], body["by"], body["path"])
    return found


def record_acceptance_used(root: Path, flow: str, tier: str, word: ColumnsAcceptance) -> None:
    """Record that the tier has started with this acceptance: it does not apply to later starts."""
    replace(_words(root, flow) / f"{tier}.json", seal(_WORD, _ACCEPTED_FORMAT, asdict(word)))


def is_used(root: Path, flow: str, tier: str, word: ColumnsAcceptance) -> bool:
    """True if the tier has already started with this acceptance."""
    path = _words(root, flow) / f"{tier}.json"
    return path.name in names_in(path.parent) and unseal(path.read_bytes(), _WORD, _ACCEPTED_FORMAT, path) == asdict(word)


def _sink(root: Path, flow: str, sink: str) -> Path:
    return root / _ACCEPTED / flow / "sinks" / f"{sink}.json"


def _words(root: Path, flow: str) -> Path:
    return root / _ACCEPTED / flow / "words"


# The stored columns of a flow's channels, as the upstream tier has found them. One small record for each channel.


CHANNELS_FOLDER = "channels"
"""the name of the folder of all channels, beside the folders of the flow's tiers"""
_CHANNEL_KIND, _CHANNEL_FORMAT = "channel", 1


@dataclass(frozen=True, slots=True)
class ChannelFolder:
    """The folder of one channel in the state folder."""

    path: Path

    @staticmethod
    def of(root: Path, flow: str, channel: str) -> ChannelFolder:
        """The folder, which need not exist."""
        return ChannelFolder(root / flow / CHANNELS_FOLDER / channel)

    @property
    def data(self) -> Path:
        """The folder of its record batches, if the channel is a folder without a path in the flow."""
        return self.path / "packs"

    def read_schema(self) -> Schema | None:
        """The columns that the upstream tier stored when it last started; None if it never did."""
        data = read_or_none(self._record)
        return None if data is None else parse_schema(unseal(data, _CHANNEL_KIND, _CHANNEL_FORMAT, self._record)["columns"])

    def write_schema(self, schema: Schema) -> None:
        """Store the columns of the channel's rows. The caller holds the lease of the upstream tier."""
        if self.read_schema() != schema:
            make_folder(self.path)
            replace(self._record, seal(_CHANNEL_KIND, _CHANNEL_FORMAT, {"columns": str(schema)}))

    def check_columns(self, schema: Schema, node: str) -> None:
        """Check, before the channel's reader reads on, that it knows all columns. The upstream tier stores its columns before any row that
        has them.

        Args:
            schema: The columns that the reader takes from the channel.
            node: The reader's source, for the message.

        Raises:
            ColumnsOutdated: The upstream tier writes a column that is not in `schema`, or has another type there.
        """
        given = self.read_schema()
        known = {field.name: field.type for field in schema.fields}
        new = [] if given is None else [field for field in given.fields if known.get(field.name) != field.type]
        if new:
            columns = ", ".join(f"{each.name} {each.type}" for each in new)
            raise ColumnsOutdated(
                f"channel {self.path.name} has other columns since its upstream restarted: {columns}",
                remedy="restart the flow, which adds the columns",
                node=node,
            )

    @property
    def _record(self) -> Path:
        return self.path / "channel.json"


_LEARNED = "_learned"
_LEARNED_KIND, _LEARNED_FORMAT = "learned-column", 1


@dataclass(frozen=True, slots=True)
class Learned:
    """A learned column. `at` is when the first Batch that contained it was decided, ISO 8601; `file` is where it was found."""

    field: Field
    at: str
    file: str


def column_of(notice: FormatNotice) -> Field | None:
    """The new column as a field; None if its name or type is not valid for a column."""
    try:
        (field,) = parse_schema(f"`{notice.column.replace('`', '``')}` {notice.type}").fields
    except (SchemaSyntaxError, ValueError):
        return None
    return field


def is_reserved_column(name: str) -> bool:
    """True if the name is reserved: it begins like the columns that Scribengin itself adds to rows."""
    return name.lower().startswith("_sg_")


def learn(root: Path, flow: str, notice: FormatNotice, at: str) -> bool:
    """Store a new column durably; False if the source has it already, or if its name or type is not valid for a column."""
    field = column_of(notice)
    return field is not None and keep_learned(root, flow, notice.source, Learned(field, at, notice.file))


def keep_learned(root: Path, flow: str, source: str, learned: Learned) -> bool:
    """Store a learned column durably; False if the source has it already, or if its name is reserved."""
    field = learned.field
    if is_reserved_column(field.name):
        return False
    name = hashlib.sha256(field.name.lower().encode()).hexdigest()[:32] + ".json"
    body = {"column": str(field), "at": learned.at, "file": learned.file}
    return put_if_absent(_folder(root, flow, source) / name, seal(_LEARNED_KIND, _LEARNED_FORMAT, body))


def read_learned(root: Path, flow: str, source: str) -> list[Learned]:
    """The columns that a source has learned, in the order in which they were seen. Raises StateError for a record that is damaged."""
    folder = _folder(root, flow, source)
    learned = []
    for name in names_in(folder):
        body = unseal((folder / name).read_bytes(), _LEARNED_KIND, _LEARNED_FORMAT, folder / name)
        learned.append(Learned(parse_schema(body["column"]).fields[0], body["at"], body["file"]))
    return sorted(learned, key=lambda each: (each.at, each.field.name))


def _folder(root: Path, flow: str, source: str) -> Path:
    return root / _LEARNED / flow / source
