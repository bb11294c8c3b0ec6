"""The combined format of Apache and nginx: `host ident user [time] "request" status bytes "referer" "agent"`."""

import re
from datetime import UTC, datetime

from scribengin import record

LINE = re.compile(r'(\S+) \S+ \S+ \[([^\]]+)\] "((?:[^"\\]|\\.)*)" (\d{3}) (\d+|-) "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"')


@record
def request(row: dict) -> dict:
    """One request. What is no such line is a dead letter with its bytes, and costs the others nothing."""
    found = LINE.fullmatch(row["value"])
    if found is None:
        raise ValueError("not a line of the combined log format")
    host, time, line, status, size, referer, agent = found.groups()
    method, _, rest = line.partition(" ")  # a client may send anything here, also nothing
    return {
        "at": datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC),
        "host": host,
        "method": method,
        "path": rest.rpartition(" ")[0].partition("?")[0] or rest,
        "status": int(status),
        "bytes": 0 if size == "-" else int(size),
        "referer": None if referer == "-" else referer,
        "agent": None if agent == "-" else agent,
    }
