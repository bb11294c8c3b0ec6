"""The committed objects of a place, by its manifests: for readers that do not use a listing."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from scribengin.connectors.hdfs import options as hdfs
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.compaction_log import CountedManifests, root_of
from scribengin.connectors.objects.manifests import lineages
from scribengin.connectors.objects.options import SINK
from scribengin.connectors.objects.read_lease import reading
from scribengin.connectors.objects.s3 import s3a_settings
from scribengin.core.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession


_ARROW = {"parquet": "parquet", "json": "json", "csv": "csv"}


@dataclass(frozen=True, slots=True)
class CommittedObject:
    """A committed object."""

    key: str
    """relative to the url"""
    rows: int
    bytes: int
    lineage: str
    batch: int
    """its last Batch, for a merged object"""


@dataclass(frozen=True, slots=True)
class CommittedObjects:
    """All objects that were committed when the manifests were read; later and unfinished ones are not included."""

    address: ObjectsAddress
    format: str
    objects: tuple[CommittedObject, ...]

    @property
    def rows(self) -> int:
        """The rows of all objects."""
        return sum(each.rows for each in self.objects)

    @property
    def urls(self) -> list[str]:
        """The URLs of the objects, in the order of their commits."""
        top = self.address.url.rstrip("/")
        return [f"{top}/{each.key}" for each in self.objects]

    def dataset(self) -> Any:
        """A `pyarrow.dataset.Dataset` of them; folders `column=value` become columns. Raises SourceError for text, which Arrow cannot
        read."""
        import pyarrow.dataset as ds

        self._check("dataset")
        filesystem, top = self._arrow()
        parts = [
            ds.dataset(
                [f"{top}/{key}" for key in keys],
                filesystem=filesystem,
                format=_ARROW[self.format],
                partitioning="hive",
                partition_base_dir=f"{top}/{root}".rstrip("/"),
            )
            for root, keys in self._by_root().items()
        ]
        return parts[0] if len(parts) == 1 else ds.dataset(parts)

    def spark(self, session: SparkSession) -> DataFrame:
        """A DataFrame of them. A store is read by Hadoop's S3A client, which is not part of Spark: see `spark_settings`."""
        self._check("DataFrame")
        top = self.address.url.rstrip("/").replace("s3://", "s3a://", 1)

        def read(root: str, keys: list[str]) -> DataFrame:
            reader = session.read.format(self.format).option("basePath", f"{top}/{root}")
            if self.format == "csv":
                reader = reader.option("header", "true")
            return reader.load([f"{top}/{key}" for key in keys])

        return reduce(lambda one, other: one.unionByName(other), (read(*each) for each in self._by_root().items()))

    def spark_settings(self) -> dict[str, str]:
        """The settings of a session for reading the store by S3A, with secrets in plain text; hadoop-aws must be among its jars."""
        return {f"spark.hadoop.{name}": value for name, value in s3a_settings(self.address.with_login()).items()}

    def _by_root(self) -> dict[str, list[str]]:
        """Prefix of the partition folders → keys; several if some objects wait for a compactor."""
        found: dict[str, list[str]] = {}
        for each in self.objects:
            found.setdefault(root_of(each.key), []).append(each.key)
        return found

    def _check(self, what: str) -> None:
        if not self.objects:
            raise SourceError(f"{self.address} has no committed object", remedy="run the flow that writes there")
        if self.format not in _ARROW:
            raise SourceError(f"{self.address} holds {self.format}, which cannot be read as {what}", remedy="read `urls` line by line")

    def _arrow(self) -> tuple[Any, str]:
        from pyarrow import fs

        address = self.address
        parts = urlsplit(address.url)
        if address.is_local:
            return fs.LocalFileSystem(), unquote(parts.path).rstrip("/")
        if address.is_hdfs:
            raise SourceError(f"{address} is in HDFS, which Arrow cannot read directly", remedy="use .spark(session), or .urls")
        login = address.with_login().login
        given: dict[str, Any] = {"region": address.region, "force_virtual_addressing": not address.path_style}
        if login is not None:
            given |= {"access_key": login.key, "secret_key": login.secret, "session_token": login.token}
        if address.endpoint is not None:
            endpoint = urlsplit(address.endpoint)
            given |= {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
        if address.ca_file is not None:
            given["tls_ca_file_path"] = address.ca_file
        return fs.S3FileSystem(**given), f"{parts.netloc}{parts.path}".rstrip("/")


def committed(url: str, **options: Any) -> CommittedObjects:
    """The committed objects below a url, where a sink `type: objects` or `type: hdfs` writes.

    Args:
        url: The sink's url.
        options: The sink's access options: endpoint, region, path_style, ca_file, config, profile, or settings. Without a login among them
            the one of the environment is used.

    Raises:
        SourceError: No sink has written there.
        ScribenginError: The store's errors.
    """
    return committed_at(_address(url, options))


@contextmanager
def holding(url: str, **options: Any) -> Iterator[CommittedObjects]:
    """Like `committed`, with a read lease until the end of the block: its objects are kept even if they are merged into larger ones in the
    meantime. For readers that need more than a quarter of an hour. Raises the errors of `committed`."""
    address = _address(url, options)
    with reading(address.open()):
        yield committed_at(address)


def _address(url: str, options: Mapping[str, Any]) -> ObjectsAddress:
    type_ = hdfs.SINK if url.startswith("hdfs:") else SINK
    return ObjectsAddress.of("reader", type_.filled({"url": url, "format": "parquet"} | dict(options)))


def committed_at(address: ObjectsAddress) -> CommittedObjects:
    """Like `committed`, for an address."""
    store = address.open()
    found: list[CommittedObject] = []
    format_ = ""
    names = lineages(store)
    if not names:
        raise SourceError(
            f'"{address.node}": no sink has written to {address}', remedy="run the flow that writes there, or correct the url"
        )
    for lineage in names:
        counted = CountedManifests.of(store, lineage)
        format_ = counted.records[-1][1]["format"] if counted.records else format_
        objects = ((each.batch, each.said) for each in counted.objects())
        found += (CommittedObject(said["name"], said["rows"], said["bytes"], lineage, batch) for batch, said in objects)
    return CommittedObjects(address, format_, tuple(found))
