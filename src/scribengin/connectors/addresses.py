"""Addresses in options: their checks, made without a connection, and the data that they lead to. Imports no client."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from scribengin.core.options import StoreUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from urllib.parse import SplitResult

Fault = tuple[str, str]
"""what is wrong with a value, as text to follow the name of its option, and what to write instead"""


@dataclass(frozen=True, slots=True)
class DataLocation:
    """The location of data: objects or files below an address, a table, or a topic (`NodeType.locations`). It contains no login, so that it
    is equal for all nodes that use the same data. A folder given by an option `path` needs no DataLocation."""

    kind: Literal["objects", "table", "topic"]
    at: str
    """for objects their URL, with the endpoint; for a table the server and database; for a topic the servers of its cluster, separated by
    commas: two lists with one server in common mean the same cluster"""
    name: str = ""
    """the name of the topic or table"""
    many: bool = False
    """for objects: True includes all objects below `at`; for a topic: True if `name` is a regular expression"""


_MOST_PORT = 65535
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]@,]+)(?::(\d{1,5}))?")
_LISTENER = re.compile(r"[A-Za-z_0-9]+://")


def split_url(url: str) -> SplitResult | None:
    """The parts of a URL. None if it cannot be split: a bracket is not closed, or its content is not an address.

    >>> split_url("http://search1:9200").netloc, split_url("http://[::1")
    ('search1:9200', None)
    """
    try:
        return urlsplit(url)
    except ValueError:
        return None


def has_password(addresses: str) -> bool:
    """True if one of several comma-separated addresses contains a password: before its host, or in its query.

    >>> has_password("postgresql://etl@db1/shop"), has_password("http://a:1,http://me:pw@b:1"), has_password("postgresql://db/s?password=x")
    (False, True, True)
    """
    return re.search(r"://[^/@]*:[^/]*@|[?&](?:password|sslpassword)=[^&]", addresses) is not None


def without_login(addresses: str) -> str:
    """The address or addresses without the login.

    >>> without_login("postgresql://etl@db1/shop, http://me:pw@b:1")
    'postgresql://db1/shop, http://b:1'
    """
    return re.sub(r"://[^/]*@", "://", addresses)


def is_host(text: str) -> bool:
    """True for HOST and HOST:PORT with a port from 1 to 65535.

    >>> is_host("db1"), is_host("[::1]:9042"), is_host("db1:0"), is_host("http://db1")
    (True, True, False, False)
    """
    found = _HOST.fullmatch(text)
    return found is not None and (found[2] is None or 0 < int(found[2]) <= _MOST_PORT)


def url_check(*schemes: str, write: str) -> Callable[[str | Iterable[str]], Fault | None]:
    """A check for `Option.check`: each text is a URL of one of the schemes that names a host. `write` is the remedy."""

    def check(value: str | Iterable[str]) -> Fault | None:
        urls = [value] if isinstance(value, str) else [*value]
        if not urls:
            return "is empty", write
        for url in urls:
            parts = split_url(url)
            if parts is None or parts.scheme not in schemes or not is_host(parts.netloc.rpartition("@")[2]) or not url.isprintable():
                return f"has {_shown(url)}, which is not an address", write
        return None

    return check


def hosts_fault(hosts: Iterable[str]) -> Fault | None:
    """A check for `Option.check`: there is at least one text, and each is HOST or HOST:PORT."""
    named = [*hosts]
    if not named:
        return "is empty", "write HOST or HOST:PORT"
    wrong = next((host for host in named if not is_host(host)), None)
    return None if wrong is None else (f"has {_shown(wrong)}, which is not an address", "write HOST or HOST:PORT, with a port up to 65535")


def brokers_fault(brokers: str) -> Fault | None:
    """A check for `Option.check`: HOST:PORT of Kafka's brokers, separated by commas; each may begin with a listener's name
    (`SSL://HOST:PORT`)."""
    hosts = [_LISTENER.sub("", each.strip(), count=1) for each in brokers.split(",") if each.strip()]
    if hosts and all(map(is_host, hosts)):
        return None
    return f"has {_shown(brokers)}, which is not a list of brokers", "write HOST:PORT,HOST:PORT, with ports up to 65535"


def database_fault(url: str) -> Fault | None:
    """A check for `Option.check`: a URL of PostgreSQL (for other schemes see `url_check`), which may name several servers, or none (a
    socket of this machine)."""
    scheme, found, rest = url.partition("://")
    hosts = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    named = [host for host in hosts.split(",") if host]
    if found and scheme in ("postgresql", "postgres") and url.isprintable() and all(map(is_host, named)):
        return None
    return f"has {_shown(url)}, which is not an address of a database", "write postgresql://USER@HOST:PORT/DATABASE"


def _shown(text: str) -> str:
    """The text in quotes, on one line, without a login, shortened to `_MOST_SHOWN` characters."""
    scheme, found, rest = text.partition("://")
    bare = f"{scheme}://{rest.rpartition('@')[2]}" if found else text.rpartition("@")[2]
    short = bare if len(bare) <= _MOST_SHOWN else f"{bare[:_MOST_SHOWN]}…"
    return '"' + "".join(each if each.isprintable() else repr(each)[1:-1] for each in short) + '"'


_MOST_SHOWN = 60


S3_URL = StoreUrl("url", ("s3", "file"), "write s3://BUCKET/PREFIX, and the server as `endpoint`")
HDFS_URL = StoreUrl("url", ("hdfs",), "write hdfs://NAMENODE:PORT/FOLDER")


def store_url_fault(url: str, form: StoreUrl) -> tuple[str, str] | None:
    """What is wrong with the syntax of a store's url, and the remedy; None if it is valid.

    >>> store_url_fault("s3://bucket/sales", S3_URL), store_url_fault("http://host/bucket", S3_URL)
    (None, ('begins with "http://"', 'write s3://BUCKET/PREFIX, and the server as `endpoint`'))
    """
    parts = split_url(url)
    if parts is None or not url.isprintable():
        return "is not an address", form.write
    if parts.scheme not in form.schemes:
        return (f'begins with "{parts.scheme}://"' if parts.scheme else "has no scheme"), form.write
    if parts.scheme == "file":
        return None if parts.path.strip("/") and not parts.netloc else ("names no folder", "write file:///FOLDER")
    if "@" in parts.netloc:
        return "contains a user", "remove it: write it as `config`, with the secret as ${secret:env/NAME}"
    if not parts.netloc:
        return ("names no bucket" if parts.scheme == "s3" else "names no NameNode"), form.write
    if parts.scheme == "hdfs" and not parts.path.strip("/"):
        return "names no folder", form.write
    if (
        parts.query
        or parts.fragment
        or any(part in (".", "..") or not part for part in parts.path.strip("/").split("/") if parts.path.strip("/"))
    ):
        return "has a prefix that is not a valid path", "remove ?, #, empty parts, . and .."
    return None
