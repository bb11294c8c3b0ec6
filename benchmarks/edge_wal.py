"""The write-ahead log of an agent, alone (python benchmarks/edge_wal.py --mib N --frame BYTES --folder DIR).

For each policy of `sync`: MB/s of appended frames, with the syncs that the policy asks for, on the disk of the folder; MB/s of reading them
back, as a sender does; seconds until the log of that size is open again; and the largest memory of the process. Frames are not compressed,
so that the figures are those of the log. For comparison: the same bytes written to one file, without a log.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import google_crc32c

from scribengin.wal.log import Wal
from scribengin.wire.frames import FrameHead, FrameOrigin, encode_frame

MB = 10**6
POLICIES = ("each", "100ms", "16MiB", "1h")


def frames(size: int, count: int) -> list[tuple[FrameHead, bytes]]:
    origin = FrameOrigin(host="web-1", file="/var/log/nginx/access.log", identity="2049:1:a", end=1)
    first = bytearray(encode_frame(FrameHead("records", "none", 0, 1000, size, 0, origin=origin), os.urandom(size)))
    made = []
    for at in range(count):
        first[16:24] = (at * 1000).to_bytes(8, "little")
        first[8:12] = google_crc32c.value(bytes(first[12:])).to_bytes(4, "little")
        made.append((FrameHead("records", "none", at * 1000, 1000, size, 0, origin=origin), bytes(first)))
    return made


def plain(folder: Path, made: list[tuple[FrameHead, bytes]]) -> float:
    """MB/s of the bare writes."""
    began = time.perf_counter()
    handle = os.open(folder / "plain", os.O_CREAT | os.O_WRONLY)
    for _, frame in made:
        os.write(handle, frame)
    os.close(handle)
    return sum(len(frame) for _, frame in made) / MB / (time.perf_counter() - began)


def measure(folder: Path, sync: str, made: list[tuple[FrameHead, bytes]]) -> str:
    total = sum(len(frame) for _, frame in made) / MB
    wal = Wal(folder, most_bytes=2**40, sync=sync)
    began = time.perf_counter()
    for head, frame in made:
        wal.append(frame, head)
        wal.sync(now_s=time.monotonic())
    appended = total / (time.perf_counter() - began)
    wal.sync(now_s=0.0, force=True)
    at, began = 0, time.perf_counter()
    while (piece := wal.read(at, 2**20)) is not None:
        at = piece.next
    read = total / (time.perf_counter() - began)
    wal.close()
    began = time.perf_counter()
    Wal(folder, most_bytes=2**40).close()
    opened_s = time.perf_counter() - began
    return f"{sync:>6}  append {appended:7,.0f} MB/s  read {read:7,.0f} MB/s  open {opened_s:5.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--frame", type=int, default=2**18)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    made = frames(asked.frame, max(1, asked.mib * 2**20 // asked.frame))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        print(f" plain  append {plain(Path(folder), made):7,.0f} MB/s")
        for sync in POLICIES:
            print(measure(Path(folder) / sync, sync, made))
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 - before} MiB more than with the frames alone")


if __name__ == "__main__":
    main()
