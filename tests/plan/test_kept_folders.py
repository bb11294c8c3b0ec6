"""Which folders a tier's sinks leave to be kept: the very ones that the sinks themselves write into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.sink import PublishedFiles
from scribengin.local.prepare import open_sinks, prepare
from scribengin.plan.maintained_places import kept_folders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLOW = """\
version: 1
name: orders
sources: {lines: {type: files, path: data, format: text}}
steps:
  long: {from: lines, filter: length(value) > 3}
  loud: {from: long, filter: value = upper(value)}
sinks:
  kept: {from: loud, type: files, path: out/kept, format: json}
  spread: {from: loud, type: files, path: spread, format: json, to: disks}
  shown: {from: loud, type: console}
groups: {disks: {members: [{name: east, at: "%(at)s/east"}, {name: west, at: "%(at)s/west", cost: 2}]}}
tiers: {edge: {steps: [long]}, core: {steps: [loud]}}
defaults: {edge: {channel: {type: folder}}}
"""


def folder_sinks(sink: Any) -> Iterator[PublishedFiles]:
    """Those that write into a folder, behind what stands before them."""
    if isinstance(sink, PublishedFiles):
        yield sink
    for inner in [*getattr(sink, "_sinks", {}).values(), *filter(None, [getattr(sink, "inner", None)])]:
        yield from folder_sinks(inner)


def test_they_are_the_folders_of_the_sinks_as_these_are_opened(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW % {"at": tmp_path})
    prepared = prepare(path, state=tmp_path / "state")
    for tier in prepared.tiers:
        said = kept_folders(tier.plan.flow)
        opened = open_sinks(tier.plan.flow, tier.plan, tier.folder, frozenset(said))
        folders = [each for sink in opened.values() for each in folder_sinks(sink)]
        assert sorted(str(sink.path) for sink in folders) == sorted(said)
        assert not any(sink._keeps for sink in folders)
    edge, core = (kept_folders(tier.plan.flow) for tier in prepared.tiers)
    assert len(edge) == 1
    assert core == tuple(str(tmp_path / each) for each in ("east/spread", "out/kept", "west/spread"))
