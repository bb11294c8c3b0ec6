"""Every Batch that was handed over is compared at both ends of its channel, from the records alone, whenever it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from flow_states import INPUT, Chain, file_entry

from scribengin.connectors.contract import SourceStream
from scribengin.core.numbered_log import NumberedLog
from scribengin.formats.contract import Handed
from scribengin.state.channel_audit import ChannelAudit, _UpstreamLineage, _Walk, audit_channels
from scribengin.state.channel_digests import NOT_WHOLE, taken_of
from scribengin.state.lineage import rewind

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = 2**64 - 5


@pytest.fixture(params=["folder", "kafka"])
def chain(tmp_path: Path, request: pytest.FixtureRequest) -> Chain:
    chain = Chain(tmp_path, "ab", kind=request.param)
    chain["a"].digest = DIGEST
    return chain


def put(chain: Chain, count: int) -> None:
    for number in range(count):
        chain["a"].batch({INPUT: file_entry(f"{number}.jsonl")})


def handed(chain: Chain, number: int, rows: int = 10, digest: int = DIGEST) -> Handed:
    assert chain["a"].lineage is not None
    return Handed(chain["a"].lineage.id, number, rows, digest, 0)


def take(chain: Chain, *numbers: int, said: list[Handed] | None = None, skipped: bool = False) -> None:
    streams = [replace(stream, skipped=skipped) for stream in chain["a"].output(*numbers)]
    given = [handed(chain, number) for number in numbers] if said is None else said
    chain["b"].batch({"a": streams}, sums={"a": taken_of(given)} if given else {})


def audited(chain: Chain) -> ChannelAudit:
    (found,) = audit_channels(chain.topology())
    return found


def figures(found: ChannelAudit) -> tuple[int, int, list[int]]:
    return found.compared, found.not_compared, [mismatch.batch for mismatch in found.mismatches]


def test_all_batches_that_were_taken_whole_are_compared(chain: Chain) -> None:
    put(chain, 6)
    take(chain, 0, 1)
    take(chain, 2)
    take(chain, 3)
    assert figures(audited(chain)) == (4, 0, [])


def test_a_batch_that_came_out_otherwise_is_found_however_long_ago_that_was(chain: Chain) -> None:
    put(chain, 4)
    take(chain, 0, said=[handed(chain, 0, rows=4, digest=7)])
    for number in (1, 2, 3):
        take(chain, number)
    found = audited(chain)
    assert figures(found) == (4, 0, [0])
    assert "10 rows were written, but 4 were read by b/b/a" in str(found.mismatches[0])


def test_a_batch_that_no_pack_came_of_is_found(chain: Chain) -> None:
    put(chain, 2)
    take(chain, 0, said=[])
    take(chain, 1)
    assert figures(audited(chain)) == (2, 0, [0])


def test_packs_that_came_once_more_later_are_found(chain: Chain) -> None:
    put(chain, 3)
    take(chain, 0)
    take(chain, 1)
    take(chain, 2, said=[handed(chain, 2), handed(chain, 0)])
    found = audited(chain)
    assert figures(found) == (3, 0, [0])
    assert found.mismatches[0].late


def test_five_are_explained_and_the_others_counted(chain: Chain) -> None:
    put(chain, 8)
    for number in range(8):
        take(chain, number, said=[handed(chain, number, rows=9)])
    found = audited(chain)
    assert (len(found.mismatches), found.more) == (5, 3)


@pytest.mark.parametrize("how", ["passed over", "no whole pack", "before sums were kept"])
def test_what_cannot_be_compared_is_counted_and_no_mismatch(chain: Chain, how: str) -> None:
    put(chain, 4)
    take(chain, 0)
    if how == "passed over":
        take(chain, 1, said=[], skipped=True)
    elif how == "no whole pack":
        take(chain, 1, said=[handed(chain, 1, rows=3), NOT_WHOLE])
    else:
        chain["b"].batch({"a": chain["a"].output(1)}, counts={"a": 10})
    take(chain, 2)
    take(chain, 3, said=[handed(chain, 3, rows=3)])
    compared, not_compared, wrong = figures(audited(chain))
    assert wrong == [3]
    assert 1 <= not_compared <= 2
    assert compared + not_compared == 4


def test_a_batch_of_which_half_was_taken_beside_no_whole_pack_is_not_compared(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "ab", kind="kafka")
    chain["a"].digest = DIGEST
    put(chain, 3)
    half = SourceStream("t", {"topic": "a_b", "partition": 0, "start": 0, "end": 5, "id": "x"})
    chain["b"].batch({"a": [half]}, sums={"a": taken_of([handed(chain, 0, rows=3, digest=3), NOT_WHOLE])})
    take(chain, 0, said=[handed(chain, 0, rows=5, digest=5)])
    take(chain, 1)
    take(chain, 2)
    assert figures(audited(chain)) == (2, 1, [])


def test_batches_that_a_feeder_has_dropped_are_not_compared(chain: Chain) -> None:
    put(chain, 3)
    assert chain["a"].lineage is not None
    log = NumberedLog(chain["a"].folder.work("a_b") / chain["a"].lineage.id / "outbox" / "dropped", "dropped")
    log.put(0, {"number": 1, "rows": 10, "bytes": 100, "why": "full"})
    take(chain, 0)
    take(chain, 2)
    topology = chain.topology()
    links = tuple(replace(link, drops=True, holds=False) for link in topology.links)
    (found,) = audit_channels(replace(topology, links=links))
    assert figures(found) == (2, 1, [])


def test_what_a_feeder_had_put_in_before_it_went_back_is_compared_too(chain: Chain) -> None:
    put(chain, 2)
    take(chain, 0)
    take(chain, 1, said=[handed(chain, 1, rows=9)])
    feeder = chain["a"]
    feeder.lineage = rewind(feeder.folder, {INPUT: 1})
    feeder.taken = {INPUT: 1}
    assert figures(audited(chain)) == (2, 0, [1])


def test_what_a_reader_had_taken_before_it_went_back_is_not_compared_again(chain: Chain) -> None:
    put(chain, 4)
    for number in range(3):
        take(chain, number)
    reader = chain["b"]
    reader.lineage = rewind(reader.folder, {"a": 2})
    reader.taken = {"a": 2}
    reader.batch({"a": chain["a"].output(2)}, sums={"a": taken_of([handed(chain, 2)])})
    take(chain, 3)
    compared, not_compared, wrong = figures(audited(chain))
    assert wrong == []
    assert compared + not_compared == 4
    assert compared >= 1


def test_a_channel_that_nobody_has_read_says_nothing(chain: Chain) -> None:
    put(chain, 1)
    assert audit_channels(chain.topology()) == []


def test_an_audit_reads_no_more_of_the_feeder_than_it_needs(chain: Chain) -> None:
    """A long history is walked along both ends at once, not held in memory."""
    put(chain, 30)
    for number in range(10):
        take(chain, number)
    (link,) = chain.topology().links
    assert chain["a"].lineage is not None
    feeder = _UpstreamLineage(link, chain["a"].folder, chain["a"].folder, chain["a"].lineage.id)
    walk = _Walk(link, link.readers[0], feeder, chain["b"].folder)
    walk.run()
    assert walk.compared == 10
    assert len(walk._put) <= 3
