"""Objects of a store with the S3 protocol, by obstore; errors become Scribengin errors."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import re
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from threading import local
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from scribengin.connectors.objects.counted import CountedWriter
from scribengin.core.errors import EnvironmentFault, SinkError, Unreachable
from scribengin.core.store import StoreEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from scribengin.connectors.objects.address import ObjectsAddress
    from scribengin.core.errors import ScribenginError


PART_BYTES = 8 * 2**20
"""part size of an object that is larger than one part; a store accepts none below 5 MiB, and at most 10,000 of them"""
PARTS_AT_ONCE = 4
CONNECT_S, REQUEST_S, RETRY_S, RETRIES = 5, 120, 10, 3
"""time limits and retries of the store's client"""
_ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
"""environment variables that the library reads by itself"""
_CODE = re.compile(r"<Code>(\w+)</Code>")
_GONE = "(code: NoSuchKey)"
"""how the library reports a store's answer about one of many keys"""
_REFUSED = re.compile(r"status code\W+40[013]\b")
"""how the library reports a refused HEAD request, whose answer has no text"""
_REMEDIES = {
    ("NoSuchBucket", "InvalidBucketName"): ("objects-bucket", "create the bucket, or correct `url`"),
    ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "AuthorizationHeaderMalformed", "XAdminUserNotFound"): (
        "objects-login",
        "correct the access key and its secret (`config`, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile), and `region`",
    ),
    ("AccessDenied", "AllAccessDisabled", "AccountProblem"): (
        "objects-rights",
        "grant this access key the rights to list, read, write and delete below the url",
    ),
    ("RequestTimeTooSkewed", "RequestExpired"): ("objects-clock", "set this machine's clock: it differs by minutes from the store's clock"),
    ("PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException"): (
        "objects-region",
        "correct `region` and `endpoint`: the bucket is elsewhere",
    ),
    ("NotImplemented",): ("objects-unable", "use a store that supports If-None-Match: without it two writers could both commit"),
}
"""S3 error → our code, and the remedy"""

_FULL = ("InsufficientStorage", "InsufficientCapacity", "StorageFull", "QuotaExceeded", "No space left on device", "Disk quota exceeded")
"""messages of stores whose disks are full: those of RFC 4918 (status 507), MinIO and Ceph; gateways to a file system use its own words"""


def client() -> Any:
    """The module `obstore`. Raises EnvironmentFault if it is not installed."""
    try:
        import obstore
    except ImportError as error:
        raise EnvironmentFault(
            f"type: objects needs the package obstore: {error}",
            remedy="install it: pip install 'scribengin[objects]'",
            code="objects-client",
        ) from error
    return obstore


class S3Store:
    """A store with the S3 protocol, see Store; keys are relative to the address. Cheap to keep, expensive to create; not pickled."""

    copy_bytes = 5 * 2**30
    """the largest object that S3 copies in one request"""

    def __init__(self, address: ObjectsAddress, bucket: str, prefix: str) -> None:
        self.address = address
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self.login = login = address.login
        obstore = client()
        from obstore.store import S3Store as Opened

        config: dict[str, Any] = {"region": address.region, "virtual_hosted_style_request": not address.path_style}
        options: dict[str, Any] = {
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "timeout": timedelta(seconds=REQUEST_S),
            "allow_http": (address.endpoint or "").startswith("http://"),
        }
        if address.server is not None:
            config["endpoint"] = address.server
        if address.ca_file is not None:
            options["root_certificate"] = address.authorities()
        if login is not None:
            config |= {"access_key_id": login.key, "secret_access_key": login.secret} | ({"token": login.token} if login.token else {})
        self._obstore = obstore
        self._errors = obstore.exceptions
        for name in _ENDPOINTS:
            if os.environ.get(name) == "":  # empty means unset, as for AWS's tools; the library would use it
                del os.environ[name]
        retry: Any = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)}
        with self._explained("cannot be opened"):
            self._store = Opened(bucket, client_options=cast("Any", options), retry_config=retry, **config)

    def __str__(self) -> str:
        return str(self.address)

    def put(self, key: str, data: bytes) -> bool:
        """See Store."""
        with self._explained(f"failed to write {key}"):
            try:
                self._obstore.put(self._store, self.prefix + key, data, mode="create", use_multipart=False)
            except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
                return False
        return True

    def get(self, key: str) -> bytes | None:
        """See Store."""
        with self._explained(f"failed to read {key}"):
            try:
                return bytes(self._obstore.get(self._store, self.prefix + key).bytes())
            except FileNotFoundError as error:
                if _is_missing(error):
                    return None
                raise

    def range(self, key: str, start: int, end: int) -> bytes:
        """See Store."""
        if end <= start:
            return b""
        with self._explained(f"failed to read {key}"):
            return bytes(self._obstore.get_range(self._store, self.prefix + key, start=start, end=end))

    def head(self, key: str) -> StoreEntry | None:
        """See Store."""
        with self._explained(f"failed to read {key}"):
            try:
                return self._entry(self._obstore.head(self._store, self.prefix + key))
            except FileNotFoundError:
                return None

    def list(self, folder: str = "", after: str = "") -> Iterator[StoreEntry]:
        """See Store. A thousand keys per request."""
        where = (self.prefix + folder).rstrip("/")
        with self._explained(f"failed to list {folder or 'its keys'}"):
            for some in self._obstore.list(self._store, where or None, offset=self.prefix + after if after else None, chunk_size=1000):
                yield from map(self._entry, some)

    def delete(self, *keys: str) -> None:
        """See Store. Some stores report a key that another process has deleted in the meantime as an error: keys are then deleted one by
        one."""
        if keys:
            with self._explained(f"failed to delete {keys[0]}"), suppress(FileNotFoundError):
                try:
                    self._obstore.delete(self._store, [self.prefix + key for key in keys])
                except self._errors.BaseError as error:
                    if _GONE not in str(error):
                        raise
                    if len(keys) > 1:
                        for key in keys:
                            self.delete(key)

    def move(self, key: str, to: str) -> None:
        """See Store. The store copies the object, then deletes the original."""
        with self._explained(f"failed to copy {key}"):
            self._obstore.copy(self._store, self.prefix + key, self.prefix + to)
        self.delete(key)

    def writer(self, key: str) -> S3Writer:
        """See Store."""
        with self._explained(f"failed to write {key}"):
            opened = self._obstore.open_writer(self._store, self.prefix + key, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        return S3Writer(self, opened, key)

    def abandon(self, key: str) -> None:
        """See Store. Without an access key (the machine has a role) parts are kept until the store's own rules delete them."""
        if self.login is not None:
            uploads = Uploads(self)
            for name, upload in uploads.unfinished(key):
                if name == key:
                    uploads.abort(key, upload)
        self.delete(key)

    def _entry(self, told: Any) -> StoreEntry:
        return StoreEntry(told["path"].removeprefix(self.prefix), told["size"], told["e_tag"] or "", told["last_modified"].timestamp())

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if not _is_missing(error):
                raise self.fault(error, what) from None
            raise FileNotFoundError(f"{what.rpartition(' ')[2]} does not exist") from None
        except (self._errors.BaseError, PermissionError, OSError, ValueError) as error:
            raise self.fault(error, what) from None  # the library's text quotes whole requests

    def fault(self, error: Exception, what: str) -> ScribenginError:
        """A client error as a Scribengin error. `what`: the action that failed, such as "cannot be written"."""
        said, _, details = str(error).partition("\n\nDebug source")
        return fault_of(self.address, said + ": its certificate is not trusted" * ("certificate" in details.lower()), what)


def s3a_settings(address: ObjectsAddress) -> dict[str, str]:
    """The settings of Hadoop's S3A client for the store, with secrets in plain text."""
    login, top = address.login, "fs.s3a"
    settings = {f"{top}.endpoint.region": address.region, f"{top}.path.style.access": str(address.path_style).lower()}
    if address.endpoint is not None:
        settings |= {f"{top}.endpoint": address.endpoint}
        settings |= {f"{top}.connection.ssl.enabled": str(address.endpoint.startswith("https:")).lower()}
    if login is not None:
        settings |= {f"{top}.access.key": login.key, f"{top}.secret.key": login.secret}
    return settings | ({f"{top}.session.token": login.token} if login is not None and login.token else {})


def _is_missing(error: FileNotFoundError) -> bool:
    """True if the object itself does not exist: some stores also answer 404 for a missing bucket or access key. The answer to HEAD has no
    text."""
    found = _CODE.search(str(error))
    return found is None or found[1] == "NoSuchKey"


def fault_of(address: ObjectsAddress, text: str, what: str) -> ScribenginError:
    """A message of a store or its client as a Scribengin error.

    Args:
        address: The address of the store.
        text: The message.
        what: The action that failed, such as "cannot be written".
    """
    found = _CODE.search(text)
    code = found[1] if found else ""
    message = re.search(r"<Message>(.*?)</Message>", text, re.DOTALL)
    short = f"{code}: {unescape(' '.join(message[1].split()))}" if found and message else " ".join(text.split())[:400]
    said = f'"{address.node}": {address}{f" at {address.endpoint}" if address.endpoint else ""} {what}: {short}'
    for codes, (ours, remedy) in _REMEDIES.items():
        if code in codes:
            return SinkError(said, remedy=remedy, code=ours, node=address.node)
    if any(each in text for each in _FULL):
        remedy = "free space in the store, or raise its quota; a running flow retries automatically"
        return Unreachable(said, remedy=remedy, code="objects-room", node=address.node)
    if "169.254." in text or "Credentials" in text:
        remedy = "set an access key: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a `profile`, or `config`"
        return SinkError(said, remedy=remedy, code="objects-login", node=address.node)
    if "certificate" in text or "InvalidCertificate" in text:
        return SinkError(said, remedy="set `ca_file` to the certificate authority to trust", code="objects-trust", node=address.node)
    if not code and _REFUSED.search(text):
        remedy = (
            "check the access key and its secret, `region`, this machine's clock, and the rights of the key to list, read, write and "
            "delete below the url: the store does not report which of them is wrong"
        )
        return SinkError(said, remedy=remedy, code="objects-rights", node=address.node)
    if not code and "allow_http" in text:
        return SinkError(said, remedy="begin `endpoint` with http:// or https://", code="objects-url", node=address.node)
    if code and not code.startswith(("Slow", "Internal", "Service", "RequestTimeout", "Operation")):
        return SinkError(said, remedy="correct the flow, or the store", code="objects", node=address.node)
    return Unreachable(
        said,
        remedy="check that the store is up and `endpoint` is correct; a running flow retries automatically",
        code="objects-away",
        node=address.node,
    )


class S3Writer(CountedWriter):
    """See StoreWriter. Contents smaller than a part are sent as a whole at the end."""

    def __init__(self, store: S3Store, opened: Any, key: str) -> None:
        self._store = store
        self._opened = opened
        self._what = f"failed to write {key}"
        super().__init__()

    def finish(self) -> None:
        """See StoreWriter."""
        with self._store._explained(self._what):
            self._opened.close()

    def abort(self) -> None:
        """See StoreWriter."""
        with suppress(Exception):
            self._opened.__exit__(RuntimeError, RuntimeError("given up"), None)

    def _write(self, data: Any) -> None:
        with self._store._explained(self._what):
            self._opened.write(data)


# Signed S3 requests that obstore does not offer, and that a forked process may send too.


GONE, EXISTS, CONFLICT = 404, 412, 409
"""statuses: nothing of that name; `If-None-Match` failed; another write of the name is in progress"""
_TIMEOUT_S = 60.0
_TRIES = 3
_SIGNED = "x-amz-"
"""Signature Version 4 covers the headers with this beginning"""


@dataclass(frozen=True, slots=True)
class StoreResponse:
    """The answer of the store."""

    status: int
    headers: http.client.HTTPMessage
    data: bytes

    @property
    def text(self) -> str:
        """The body of the answer, as text."""
        return self.data.decode(errors="replace")

    def all_of(self, tag: str) -> list[str]:
        """The texts of all elements with this tag."""
        return [unescape(found) for found in re.findall(f"<{tag}>(.*?)</{tag}>", self.text, re.DOTALL)]

    def one_of(self, tag: str) -> str:
        """The text of the first element with this tag; empty if there is none."""
        return next(iter(self.all_of(tag)), "")


class SignedRequests:
    """Signed requests to one bucket. Keys are complete; thread-safe. Raises the store's errors."""

    def __init__(self, address: ObjectsAddress, bucket: str) -> None:
        """Raises SinkError if the address has no access key."""
        if address.login is None:
            raise SinkError(
                f'"{address.node}": signed requests to {address} need an access key; none is set',
                remedy="set one: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a `profile`, or `config`",
                code="objects-login",
                node=address.node,
            )
        self._address = address
        self._login = address.login
        endpoint = urlsplit(address.endpoint or f"https://s3.{address.region}.amazonaws.com")
        self._plain = endpoint.scheme == "http"
        self._host = endpoint.netloc if address.path_style else f"{bucket}.{endpoint.netloc}"
        self._path = endpoint.path.rstrip("/") + (f"/{bucket}" if address.path_style else "")
        self._trust = None if self._plain else ssl.create_default_context(cafile=address.ca_file)
        self._mine = local()

    def asked(
        self,
        method: str,
        key: str | None,
        query: Mapping[str, str],
        what: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        known: tuple[int, ...] = (),
    ) -> StoreResponse:
        """Send a request and return the answer. The request is sent again if there is no answer, or the store is overloaded.

        Args:
            method: The HTTP method.
            key: The key of an object; None for the bucket.
            query: The parameters after the `?`.
            what: The action, for the error: "failed to write orders/1".
            body: The content.
            headers: Headers in addition to those of the signature.
            known: Statuses of failures that the caller handles; other failures are raised.
        """
        answer = self._ask(method, key, query, body, what, headers or {})
        content = method == "GET" and key is not None and answer.status < 300
        if not content and answer.status not in known:
            self.check(answer, what)
        return answer

    def check(self, answer: StoreResponse, what: str) -> None:
        """Raise the error of an answer; an answer that began as a success may contain one in its text."""
        if answer.status >= 300 or b"<Error>" in answer.data:
            raise fault_of(self._address, answer.text or f"status code {answer.status}", what)

    def _ask(
        self, method: str, key: str | None, query: Mapping[str, str], body: bytes, what: str, headers: Mapping[str, str]
    ) -> StoreResponse:
        path = self._path + ("" if key is None else f"/{quote(key, safe='/-_.~')}")
        asked = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
        for tries in range(_TRIES):
            try:
                answer = self._send(method, path or "/", asked, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self._mine.connection = None
                if tries == _TRIES - 1 or isinstance(error, ssl.SSLCertVerificationError):
                    raise fault_of(self._address, str(error) or type(error).__name__, what) from None
            else:
                if answer.status < 500 or tries == _TRIES - 1:
                    return answer
            time.sleep(0.1 * 4**tries)
        raise AssertionError

    def _send(self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]) -> StoreResponse:
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            if self._trust is None:
                connection = http.client.HTTPConnection(self._host, timeout=_TIMEOUT_S)
            else:
                connection = http.client.HTTPSConnection(self._host, timeout=_TIMEOUT_S, context=self._trust)
            self._mine.connection = connection
        connection.request(method, f"{path}?{query}" if query else path, body, self._signed(method, path, query, body, headers))
        answer = connection.getresponse()
        return StoreResponse(answer.status, answer.headers, answer.read())

    def _signed(self, method: str, path: str, query: str, body: bytes, given: Mapping[str, str]) -> dict[str, str]:
        """The headers of a request, with the signature over them, as in AWS's documentation of Signature Version 4."""
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(body).hexdigest()
        headers = {"host": self._host, "x-amz-content-sha256": digest, "x-amz-date": now}
        headers |= {name: value for name, value in given.items() if name.startswith(_SIGNED)}
        if self._login.token:
            headers["x-amz-security-token"] = self._login.token
        names = ";".join(sorted(headers))
        canonical = "\n".join((method, path, query, *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, digest))
        scope = f"{now[:8]}/{self._address.region}/s3/aws4_request"
        key = f"AWS4{self._login.secret}".encode()
        for part in scope.split("/"):
            key = _hmac(key, part)
        signature = _hmac(key, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}").hex()
        of = f"AWS4-HMAC-SHA256 Credential={self._login.key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**given, **headers, "authorization": of}


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


# Multipart uploads that one process starts and another completes, which obstore does not offer.


class Uploads:
    """The multipart uploads of one store. Keys are relative to the store. Raises the store's errors."""

    def __init__(self, store: S3Store | SignedRequests) -> None:
        """`store` is a store, or all of a bucket. Raises SinkError if it has no access key."""
        if isinstance(store, SignedRequests):
            self._requests, self._prefix = store, ""
        else:
            self._requests, self._prefix = SignedRequests(store.address, store.bucket), store.prefix

    def writer(self, key: str) -> PartedWriter:
        """A writer that sends the parts of an object, but does not complete it."""
        return PartedWriter(self, key)

    def begin(self, key: str, headers: Mapping[str, str] | None = None) -> str:
        """Start an upload and return its id. `headers`: headers of the object, such as `x-amz-meta-…`."""
        return self._requests.asked(
            "POST", self._prefix + key, {"uploads": ""}, f"failed to start the upload of {key}", headers=headers
        ).one_of("UploadId")

    def part(self, key: str, upload: str, nth: int, data: bytes) -> str:
        """Send a part. Sending a part again replaces it.

        Args:
            key: The key of the object.
            upload: The id of the upload.
            nth: The number of the part, from 1.
            data: The bytes of the part.

        Returns:
            The tag of the part.
        """
        query = {"partNumber": str(nth), "uploadId": upload}
        return self._requests.asked("PUT", self._prefix + key, query, f"failed to write {key}", data).headers.get("ETag", "")

    def complete(self, key: str, upload: str, etags: Sequence[str], *, create: bool = False) -> bool:
        """Complete an upload.

        Args:
            key: The key of the object.
            upload: The id of the upload.
            etags: The tags of the parts, in order.
            create: Do not replace an existing object.

        Returns:
            False if the upload does not exist (any more), or, with `create`, if the object exists or another write of it is in progress.
        """
        parts = "".join(f"<Part><PartNumber>{nth}</PartNumber><ETag>{etag}</ETag></Part>" for nth, etag in enumerate(etags, 1))
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        what = f"failed to complete {key}"
        known = (GONE, EXISTS, CONFLICT) if create else (GONE,)
        headers = {"if-none-match": "*"} if create else None
        answer = self._requests.asked("POST", self._prefix + key, {"uploadId": upload}, what, body, headers, known)
        if answer.status == GONE and "NoSuchUpload" not in answer.text:
            self._requests.check(answer, what)
        return answer.status not in known

    def abort(self, key: str, upload: str) -> None:
        """Delete the parts of an upload; no error if there is no such upload."""
        self._requests.asked("DELETE", self._prefix + key, {"uploadId": upload}, f"failed to abort {key}", known=(GONE,))

    def unfinished(self, key: str = "") -> Iterator[tuple[str, str]]:
        """(key, id of the upload) of the unfinished uploads whose keys begin with `key`."""
        marker: dict[str, str] = {}
        prefix = self._prefix + key
        while True:
            answer = self._requests.asked("GET", None, {"uploads": "", "prefix": prefix} | marker, "failed to list its uploads")
            found = zip(answer.all_of("Key"), answer.all_of("UploadId"), strict=False)
            yield from ((name.removeprefix(self._prefix), upload) for name, upload in found if name.startswith(prefix))
            if answer.one_of("IsTruncated") != "true":
                return
            marker = {"key-marker": answer.one_of("NextKeyMarker"), "upload-id-marker": answer.one_of("NextUploadIdMarker")}

    def make_bucket(self) -> None:
        """Create the bucket. No error if it exists and is ours."""
        answer = self._requests.asked("PUT", None, {}, "cannot be created", known=(CONFLICT,))
        if "BucketAlreadyOwnedByYou" not in answer.text:
            self._requests.check(answer, "cannot be created")


class PartedWriter(CountedWriter):
    """An object whose parts are in the store, and that `Uploads.complete` makes visible, in any process. Like a StoreWriter, but `finish`
    only sends the last part: completing the upload requires `upload` and `etags`."""

    def __init__(self, uploads: Uploads, key: str) -> None:
        self._uploads = uploads
        self._key = key
        self.upload = uploads.begin(key)
        super().__init__()
        self._gathered = bytearray()
        self._threads = ThreadPoolExecutor(PARTS_AT_ONCE, "upload")
        self._sent: list[Future[str]] = []

    @property
    def etags(self) -> list[str]:
        """The tags of the parts, after it is finished."""
        return [sent.result() for sent in self._sent]

    def finish(self) -> None:
        """Send the last part, and wait for all."""
        if self._gathered or not self._sent:
            self._send()
        try:
            for sent in self._sent:
                sent.result()
        finally:
            self._threads.shutdown()

    def abort(self) -> None:
        """See StoreWriter."""
        with suppress(Exception):
            self._threads.shutdown(cancel_futures=True)
        with suppress(Exception):
            self._uploads.abort(self._key, self.upload)

    def _write(self, data: Any) -> None:
        self._gathered += data
        while len(self._gathered) >= PART_BYTES:
            self._send()

    def _send(self) -> None:
        if len(self._sent) >= PARTS_AT_ONCE:
            self._sent[-PARTS_AT_ONCE].result()
        data = bytes(memoryview(self._gathered)[:PART_BYTES])
        del self._gathered[:PART_BYTES]
        self._sent.append(self._threads.submit(self._uploads.part, self._key, self.upload, len(self._sent) + 1, data))
