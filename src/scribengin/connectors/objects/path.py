"""Paths in a bucket, for a flow's state: `s3://BUCKET/PREFIX`. A record appears as a whole, by one conditional request.

A bucket has no folders and no rename, so this module has substitutes for both:

- A folder that was created, and may be empty, is an object `.folder` in it.
- A driver that holds a lease writes each record as a multipart upload, which is not visible. It then checks that it still holds its lease,
  and completes the upload. Its successor deletes the object that the driver checks, and aborts all uploads before it reads anything: an
  upload that was started before is aborted, and a driver that starts one later finds that it has lost the lease.
- A folder is moved object by object. A record in `.moves/` announces the move; the next holder of the lease completes it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4
from xml.sax.saxutils import escape

import msgspec

from scribengin.connectors.addresses import S3_URL, store_url_fault
from scribengin.connectors.objects.address import REGION, ObjectsAddress
from scribengin.connectors.objects.s3 import CONFLICT, EXISTS, GONE, PART_BYTES, SignedRequests, StoreResponse, Uploads, s3a_settings
from scribengin.core import faults
from scribengin.core.errors import FencedError, SinkError, StateError
from scribengin.core.remote import RemotePath, RemoteStat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from http.client import HTTPMessage
    from pathlib import Path

_FOLDER = ".folder"
"""name of the object that keeps a folder while it is empty"""
_MOVES = ".moves"
_MARK = "x-amz-meta-put"
"""metadata of an object: the request that created it"""
_TRIES, _PAUSE_S = 5, 0.05
"""statuses of a conditional request while another one is in progress"""
_MOST_DELETED = 1000
"""keys per request"""
_DELETED = 200
"""the status of an answer to a request for several keys, which may list keys that were not deleted"""
_ENTRY = re.compile(r"<(Contents|CommonPrefixes)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Settings for access to a bucket."""

    address: ObjectsAddress
    requests: SignedRequests
    uploads: Uploads


class S3Path(RemotePath):
    """A path in a bucket, see RemotePath. The store is the one in AWS_ENDPOINT_URL, or AWS; access keys are found as AWS's tools
    find them."""

    @staticmethod
    def of(url: str) -> S3Path:
        """Parse a path. Raises ValueError, with the remedy, if it has no bucket or no folder in it."""
        fault = store_url_fault(url, S3_URL)
        if fault is None and len(S3Path(url).parts) < 3:
            fault = ("names no folder", "write s3://BUCKET/FOLDER")
        if fault is not None:
            raise ValueError(f'"{url}" {fault[0]}; {fault[1].partition(",")[0]}')
        return S3Path(url)

    @property
    def key(self) -> str:
        """The key in the bucket."""
        return "/".join(self.parts[2:])

    @property
    def jars(self) -> tuple[str, ...]:
        """See RemotePath."""
        return ("hadoop-aws", "aws-s3")

    def hadoop_settings(self) -> dict[str, str]:
        """See RemotePath."""
        classes = {"fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem", "fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A"}
        # for this bucket only: the user's own settings apply to Spark's other reads
        own = f"fs.s3a.bucket.{self.parts[1]}."
        return classes | {own + name.removeprefix("fs.s3a."): value for name, value in s3a_settings(self._bucket.address).items()}

    def put(self, data: bytes) -> bool:
        """See RemotePath."""
        return self._fenced_put(data, guard, create=True) if (guard := self._guard()) else self._put(data, create=True)

    def put_over(self, data: bytes, *, private: bool = False) -> None:  # noqa: ARG002 (a bucket's own policy says who reads)
        """See RemotePath."""
        if guard := self._guard():
            self._fenced_put(data, guard, create=False)
        else:
            self._put(data, create=False)

    def get(self) -> bytes | None:
        """See RemotePath."""
        answer = self._asked("GET", "failed to read", known=(GONE,))
        return None if self._is_missing(answer, "failed to read") else answer.data

    def probe(self) -> RemoteStat | None:
        """See RemotePath."""
        if (headers := self._head()) is not None:
            return RemoteStat(False, int(headers.get("Content-Length", 0)), parsedate_to_datetime(headers["Last-Modified"]).timestamp())
        return RemoteStat(True, 0, 0.0) if next(self._listed(most=1), None) else None

    def entries(self) -> dict[str, RemoteStat]:
        """See RemotePath."""
        found = {}
        for key, seen in self._listed(delimiter="/"):
            name = key.removeprefix(f"{self.key}/").rstrip("/")
            if name and name != _FOLDER:
                found[name] = seen
        return found

    def make(self) -> None:
        """See RemotePath."""
        self._mark._put(b"", create=True)

    def touch_over(self) -> None:
        """See RemotePath."""
        self._put(b"", create=False)

    def remove(self, *, all_in_it: bool) -> bool:
        """See RemotePath."""
        below = [key for key, _ in self._listed()] if all_in_it else [self._mark.key] if self._mark._head() is not None else []
        keys = [self.key] * (self._head() is not None) + below
        self._delete(keys)
        return bool(keys)

    def move(self, target: Path, *, over: bool) -> None:
        """See RemotePath. Moves a folder object by object, as described above."""
        assert isinstance(target, S3Path)
        if not over and target.probe() is not None:
            raise StateError(f"{self} is not moved: {target} already exists", remedy="move that away")
        data = self.get()
        if data is not None:
            target.put_over(data)
            self.remove(all_in_it=False)
            return
        guarded = next((above for above in (*self.parents, *target.parents) if above in _guards), None)
        if guarded is None:
            self._carry(target)
            return
        record = guarded / _MOVES / f"{uuid4().hex}.json"
        record.put(msgspec.json.encode([str(self), str(target)]))
        faults.reached("state.moving")
        self._carry(target)
        record.remove(all_in_it=False)

    def new(self) -> S3File:
        """See RemotePath."""
        return S3File(self)

    def guard(self, drafts: Path | None, why: str = "") -> None:
        """See RemotePath."""
        if drafts is None:
            _guards.pop(self, None)
        else:
            assert isinstance(drafts, S3Path)
            _guards[self] = (drafts._mark, why)

    def settle(self) -> None:
        """See RemotePath. Raises SinkError for a store without conditional writes: two drivers could both commit."""
        self._check_conditions()
        uploads = self._bucket.uploads
        for _ in range(_TRIES):
            found = list(uploads.unfinished(f"{self.key}/"))
            for key, upload in found:
                uploads.abort(key, upload)
            if not found:
                break
        for name in (self / _MOVES).entries():
            record = self / _MOVES / name
            data = record.get()
            if data is not None:
                source, target = msgspec.json.decode(data, type=tuple[str, str])
                S3Path(source)._carry(S3Path(target))
                record.remove(all_in_it=False)

    # --- implementation ---

    @property
    def _bucket(self) -> _Bucket:
        name = self.parts[1]
        reached = (name, *(os.environ.get(variable, "") for variable in _VARIABLES))
        try:
            return _buckets[reached]
        except KeyError:
            pass
        address = _address(name).with_login()
        requests = SignedRequests(address, name)
        return _buckets.setdefault(reached, _Bucket(address, requests, Uploads(requests)))

    @property
    def _mark(self) -> S3Path:
        return self / _FOLDER

    def _guard(self) -> _Guard | None:
        return next((_guards[above] for above in self.parents if above in _guards), None) if _guards else None

    def _asked(
        self, method: str, what: str, body: bytes = b"", headers: Mapping[str, str] | None = None, known: tuple[int, ...] = ()
    ) -> StoreResponse:
        return self._bucket.requests.asked(method, self.key, {}, f"{what} {self.key}", body, headers, known)

    def _is_missing(self, answer: StoreResponse, what: str) -> bool:
        if answer.status == GONE and answer.one_of("Code") not in ("", "NoSuchKey"):
            self._bucket.requests.check(answer, f"{what} {self.key}")  # the bucket is missing
        return answer.status == GONE

    def _head(self) -> HTTPMessage | None:
        answer = self._asked("HEAD", "failed to read", known=(GONE,))
        return None if answer.status == GONE else answer.headers

    def _listed(self, *, delimiter: str = "", most: int = 1000) -> Iterator[tuple[str, RemoteStat]]:
        """(key, its description) of all objects below; with `delimiter` only of the direct contents, folders with a `/` at the end."""
        query = {"list-type": "2", "prefix": f"{self.key}/", "max-keys": f"{most}"} | ({"delimiter": delimiter} if delimiter else {})
        while True:
            answer = self._bucket.requests.asked("GET", None, query, f"failed to list {self.key}")
            for found in _ENTRY.finditer(answer.text):
                entry = StoreResponse(answer.status, answer.headers, found[2].encode())
                if found[1] == "CommonPrefixes":
                    yield entry.one_of("Prefix"), RemoteStat(True, 0, 0.0)
                else:
                    yield (
                        entry.one_of("Key"),
                        RemoteStat(False, int(entry.one_of("Size")), datetime.fromisoformat(entry.one_of("LastModified")).timestamp()),
                    )
            if most == 1 or answer.one_of("IsTruncated") != "true":
                return
            query |= {"continuation-token": answer.one_of("NextContinuationToken")}

    def _put(self, data: bytes, *, create: bool) -> bool:
        """Put the object. True if this call created it."""
        mark = uuid4().hex
        headers = {_MARK: mark} | ({"if-none-match": "*"} if create else {})
        for tries in range(_TRIES):
            answer = self._asked("PUT", "failed to write", data, headers, (EXISTS, CONFLICT) if create else ())
            if answer.status < 300:
                return True
            if answer.status == EXISTS or tries == _TRIES - 1:
                break
            time.sleep(_PAUSE_S * 2**tries)
        return self._is_by(mark)

    def _is_by(self, mark: str) -> bool:
        """True if the request with that mark created the object: the answer to a request may be lost, and the request is sent again."""
        headers = self._head()
        return headers is not None and headers.get(_MARK) == mark

    def _fenced_put(self, data: bytes, guard: _Guard, *, create: bool) -> bool:
        """Put the object if the guard still exists. True if this call created it. Raises FencedError."""
        uploads, mark = self._bucket.uploads, uuid4().hex
        for tries in range(_TRIES):
            upload = uploads.begin(self.key, {_MARK: mark})
            try:
                etag = uploads.part(self.key, upload, 1, data)
                faults.reached("state.drafted")
                self._check(guard)
                completed = uploads.complete(self.key, upload, [etag], create=create)
                faults.reached("state.renamed")
            except BaseException:
                with suppress(Exception):
                    uploads.abort(self.key, upload)
                raise
            if completed:
                return True
            headers = self._head()
            if headers is not None and headers.get(_MARK) == mark:
                return True
            self._check(guard)
            uploads.abort(self.key, upload)
            if create and headers is not None:
                return False
            time.sleep(_PAUSE_S * 2**tries)
        raise StateError(
            f"{self} is not written: its upload was aborted", remedy="stop the program or rule that aborts recent uploads in this bucket"
        )

    def _check(self, guard: _Guard) -> None:
        if guard[0]._head() is None:
            raise FencedError(f"{self} is not written: {guard[1]}", remedy="this driver stops; no part of it is visible")

    def _check_conditions(self) -> None:
        """Check that neither a conditional request nor the end of a conditional upload overwrites an existing object."""
        uploads, probe = self._bucket.uploads, self / f".probe.{uuid4().hex}"
        try:
            first, second = probe._put(b"1", create=True), probe._put(b"2", create=True)
            upload = uploads.begin(probe.key)
            completed = uploads.complete(probe.key, upload, [uploads.part(probe.key, upload, 1, b"3")], create=True)
            if not completed:
                uploads.abort(probe.key, upload)
            if not first or second or completed:
                raise SinkError(
                    f"the state cannot be stored in {self}: the store ignores If-None-Match, and two drivers could both write a record",
                    remedy="use a store that supports it, also for CompleteMultipartUpload",
                    code="objects-unable",
                )
        finally:
            self._delete([probe.key])

    def _carry(self, target: S3Path) -> None:
        """Copy all contents to another folder, then delete them here. Idempotent: it may be interrupted at any point and repeated."""
        keys = [key for key, _ in self._listed()]
        for key in (key for key in keys if not key.endswith("/")):  # other clients' folder markers are not needed there
            to = target.key + key.removeprefix(self.key)
            headers = {"x-amz-copy-source": quote(f"/{self.parts[1]}/{key}", safe="/-_.~")}
            answer = self._bucket.requests.asked("PUT", to, {}, f"failed to copy {key}", headers=headers, known=(GONE,))
            self._is_missing(answer, "failed to copy")
        faults.reached("state.carried")
        for guard in filter(None, (self._guard(), target._guard())):
            target._check(guard)
        self._delete(keys)

    def _delete(self, keys: list[str]) -> None:
        keys = sorted(
            keys, reverse=True
        )  # the contents of a folder before another client's marker of it: some stores refuse the reverse order
        for at in range(0, len(keys), _MOST_DELETED):
            some = keys[at : at + _MOST_DELETED]
            what = f"failed to delete {some[0]}"
            if len(some) == 1:
                self._bucket.requests.asked("DELETE", some[0], {}, what, known=(GONE,))
                continue
            objects = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in some)
            body = f'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Quiet>true</Quiet>{objects}</Delete>'.encode()
            headers = {"content-md5": base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()}
            answer = self._bucket.requests.asked("POST", None, {"delete": ""}, what, body, headers, known=(_DELETED,))
            if {*answer.all_of("Code")} - {"NoSuchKey"}:  # some stores list a key that another process has deleted in the meantime
                self._bucket.requests.check(answer, what)


class S3File(io.RawIOBase):
    """A new object, which exists when it is closed. Contents that are longer than a part are sent in parts."""

    def __init__(self, path: S3Path) -> None:
        if path._head() is not None:
            raise FileExistsError(f"{path} exists")
        self._path = path
        self._gathered = bytearray()
        self._upload = ""
        self._etags: list[str] = []

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int:
        """Append the bytes."""
        self._gathered += data
        while len(self._gathered) >= PART_BYTES:
            self._send()
        return memoryview(data).nbytes

    def sync(self) -> None:
        """Do nothing: the store has the sent bytes, and the object exists when it is closed."""

    def close(self) -> None:
        """Send the rest: from now on the object can be read."""
        if self.closed:
            return
        try:
            if not self._upload:
                made = self._path._put(bytes(self._gathered), create=True)
            else:
                self._send()
                made = self._path._bucket.uploads.complete(self._path.key, self._upload, self._etags, create=True)
            if not made:
                raise StateError(f"{self._path} is not written: another writer wrote it, or aborted its upload", remedy="run it again")
        finally:
            super().close()

    def _send(self) -> None:
        uploads, key = self._path._bucket.uploads, self._path.key
        if not self._upload:
            self._upload = uploads.begin(key)
        self._etags.append(uploads.part(key, self._upload, len(self._etags) + 1, bytes(self._gathered[:PART_BYTES])))
        del self._gathered[:PART_BYTES]


_ENDPOINT, _REGION = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), ("AWS_REGION", "AWS_DEFAULT_REGION")
_VARIABLES = (*_ENDPOINT, *_REGION, "AWS_CA_BUNDLE", "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE")
"""variables of AWS's tools with the access settings of a bucket"""


def _address(bucket: str) -> ObjectsAddress:
    endpoint, region = (next(filter(None, map(os.environ.get, names)), None) for names in (_ENDPOINT, _REGION))
    reached = (endpoint, region or REGION, endpoint is not None, os.environ.get("AWS_CA_BUNDLE"))
    return ObjectsAddress("state", f"s3://{bucket}", *reached, {}, None)


_Guard = tuple[S3Path, str]
_guards: dict[S3Path, _Guard] = {}
"""folder → an object that exists as long as this process may write below it, and the error text if it does not exist any more"""
_buckets: dict[tuple[str, ...], _Bucket] = {}
os.register_at_fork(after_in_child=_buckets.clear)  # a fork must not share its parent's connections
