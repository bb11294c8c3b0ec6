"""What a core packs and reads of tweets: per codec, with and without encryption, beside JSON lines by orjson.

python benchmarks/packs.py [--rows 200000] [--rounds 7]. Times are CPU seconds, so that other work on the machine counts little, and medians
of rounds in which all take turns. Each way is from Arrow batches to bytes and back; `to dicts` ends at Python's rows. What comes out is
compared with what went in, in every round.
"""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from harness.tweets import SCHEMA, write_tweets
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.formats.blocks import LineBlock
from scribengin.formats.contract import RecordPlace
from scribengin.formats.json import JsonDecoder
from scribengin.formats.keyring import Keyring
from scribengin.formats.origins import Origins
from scribengin.formats.packs import PackDecoder, PackMaker, read_pack
from scribengin.formats.row_ids import Hop
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from collections.abc import Callable

TWEETS = parse_schema(SCHEMA)
BATCH_ROWS = 16_384
KEYS = Keyring.of({"k1": base64.b64encode(os.urandom(32)).decode()})
AT = RecordPlace("hot-0", row=0)

Values = list[bytes]
Batches = list[pa.RecordBatch]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory(prefix="scribengin-packs-") as name:
        batches, line_bytes = tweets(Path(name), given.rows)
    rows = sum(batch.num_rows for batch in batches)
    ways: dict[str, tuple[Callable[[Batches], Values], Callable[[Values], Any]]] = {
        f"{codec}{' + AES-GCM' if keyring else ''}": pack_way(codec, keyring)
        for keyring in (None, KEYS)
        for codec in ("none", "gzip", "lz4", "snappy", "zstd")
    }
    ways["none, to dicts"] = ways["none"][0], to_dicts
    ways["JSON lines (orjson), to dicts"] = json_lines, json_dicts
    ways["JSON lines (orjson), to Arrow"] = json_lines, json_batches
    figures = measure(ways, batches, given.rounds)
    print(f"{rows:,} tweets of {line_bytes / rows:.0f} bytes as they came; CPU time, medians of {given.rounds} rounds")
    print(f"{'':32}{'bytes/row':>10}{'pack µs/row':>13}{'read µs/row':>13}{'pack rows/s':>13}{'read rows/s':>13}{'both, rival = 1':>17}")
    rival = sum(figures["JSON lines (orjson), to Arrow"][1:])
    for name, (size, pack_s, read_s) in figures.items():
        print(
            f"{name:32}{size / rows:>10.1f}{pack_s / rows * 1e6:>13.3f}{read_s / rows * 1e6:>13.3f}"
            f"{rows / pack_s:>13,.0f}{rows / read_s:>13,.0f}{rival / (pack_s + read_s):>16.1f}×"
        )
    for what, one, other in (
        ("zstd over none", "zstd", "none"),
        ("AES-GCM over none", "none + AES-GCM", "none"),
        ("AES-GCM over zstd", "zstd + AES-GCM", "zstd"),
    ):
        pack, read = (figures[one][n] / figures[other][n] for n in (1, 2))
        print(
            f"{what}: pack {pack:.2f} ×, read {read:.2f} ×, {(sum(figures[one][1:]) - sum(figures[other][1:])) / rows * 1e6:+.3f} µs a row"
        )


def tweets(folder: Path, rows: int) -> tuple[Batches, int]:
    """The well-formed ones as Arrow, and how many bytes their lines and the others' had."""
    written = write_tweets(folder, rows=rows, files=1)
    data = (folder / "tweets-000.jsonl").read_bytes()
    whole = JsonDecoder(TWEETS).columns(LineBlock("tweets", data)).batch
    assert whole.num_rows == rows - written.malformed
    return [whole.slice(start, BATCH_ROWS) for start in range(0, whole.num_rows, BATCH_ROWS)], len(data)


def pack_way(codec: Any, keyring: Keyring | None) -> tuple[Callable[[Batches], Values], Callable[[Values], Batches]]:
    maker = PackMaker(TWEETS, codec=codec, keyring=keyring, sign="hot -> tagged", about={"tier": "edge", "batch": 1})
    trail = (Hop("edge", "kept", 1, "h1", 1_700_000_000_000),)

    def pack(batches: Batches) -> Values:
        values, start = [], 0
        for batch in batches:
            zeros = np.zeros(batch.num_rows, np.int32)
            origins = Origins(["tweets/a.jsonl[0:4096]+"], zeros, np.arange(start, start + batch.num_rows), zeros, [trail])
            made, bad = maker.make(batch, origins)
            assert not bad
            values += [packed.value for packed in made]
            start += batch.num_rows
        return values

    def read(values: Values) -> Batches:
        decoder = PackDecoder(TWEETS)
        return [decoder.columns(read_pack(value, keyring, AT)).batch for value in values]

    return pack, read


def to_dicts(values: Values) -> list[dict[str, Any]]:
    decoder = PackDecoder(TWEETS)
    return [row for value in values for row in decoder.rows(read_pack(value, None, AT)).rows]


def json_lines(batches: Batches) -> Values:
    return [b"\n".join([orjson.dumps(row) for row in batch_to_rows(batch)]) for batch in batches]


def json_dicts(values: Values) -> list[dict[str, Any]]:
    """Times stay texts, as JSON has them."""
    return [orjson.loads(line) for value in values for line in value.split(b"\n")]


def json_batches(values: Values) -> Batches:
    form = arrow_schema(TWEETS)
    batches = []
    for value in values:
        rows = [orjson.loads(line) for line in value.split(b"\n")]
        for row in rows:
            if row["ts"] is not None:
                row["ts"] = dt.datetime.fromisoformat(row["ts"])
        batches.append(pa.RecordBatch.from_pylist(rows, form))
    return batches


def measure(ways: dict[str, Any], batches: Batches, rounds: int) -> dict[str, tuple[int, float, float]]:
    """(bytes, seconds to pack, seconds to read) of each."""
    expected = pa.Table.from_batches(batches).combine_chunks()
    spent: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ways}
    sizes = {}
    for _ in range(rounds):
        for name, (pack, read) in ways.items():
            begun = time.process_time()
            values = pack(batches)
            packed = time.process_time()
            found = read(values)
            done = time.process_time()
            spent[name][0].append(packed - begun)
            spent[name][1].append(done - packed)
            sizes[name] = sum(map(len, values))
            if isinstance(found[0], dict):
                assert [row["id"] for row in found] == expected["id"].to_pylist(), name
                assert name.startswith("JSON") or found == [row for batch in batches for row in batch_to_rows(batch)]
            else:
                assert pa.Table.from_batches(found).combine_chunks().equals(expected), name
    return {name: (sizes[name], statistics.median(pack), statistics.median(read)) for name, (pack, read) in spent.items()}


if __name__ == "__main__":
    main()
