"""The locations of the state, as users write them."""

from __future__ import annotations

import re
from pathlib import Path

_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_elsewhere(text: str) -> bool:
    """True if the text names another file system than that of this machine."""
    return _URL.match(text) is not None


def located(text: str) -> Path:
    """The path of a state folder that a user names: on this machine, in HDFS, or in a bucket. Raises ValueError, with what to write
    instead, for any other.

    >>> located("work/state"), located("hdfs://namenode:8020/flows"), located("s3://bucket/flows")
    (PosixPath('work/state'), HdfsPath('hdfs://namenode:8020/flows'), S3Path('s3://bucket/flows'))
    """
    if not is_elsewhere(text):
        return Path(text).expanduser()
    if text.startswith("s3:"):
        from scribengin.connectors.objects.path import S3Path

        return S3Path.of(text)
    from scribengin.connectors.hdfs.path import HdfsPath

    return HdfsPath.of(text)
