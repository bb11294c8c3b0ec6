"""Uploads in parts that one process begins and another ends, which obstore keeps to itself: S3's own requests, signed."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from html import unescape
from threading import local
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from scribengin.connectors.objects.counted import CountedWriter
from scribengin.connectors.objects.s3 import PART_BYTES, PARTS_AT_ONCE, fault_of
from scribengin.core.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from scribengin.connectors.objects.s3 import S3Store

_TIMEOUT_S = 60.0
_TRIES = 3
_GONE = 404


@dataclass(frozen=True, slots=True)
class Answer:
    """What the store said."""

    status: int
    etag: str
    text: str

    def all_of(self, tag: str) -> list[str]:
        """The texts of these elements."""
        return [unescape(found) for found in re.findall(f"<{tag}>(.*?)</{tag}>", self.text, re.DOTALL)]

    def one_of(self, tag: str) -> str:
        """The first; empty where there is none."""
        return next(iter(self.all_of(tag)), "")


class Uploads:
    """Of one store. Keys are those of the store. Raises what the store raises."""

    def __init__(self, store: S3Store) -> None:
        if store.login is None:
            raise SinkError(
                f'"{store.address.node}": uploads in parts need an access key, and none is given',
                remedy="give one: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a `profile`, or `config`",
                code="objects-login",
                node=store.address.node,
            )
        self._store = store
        self._login = store.login
        address = store.address
        endpoint = urlsplit(address.endpoint or f"https://s3.{address.region}.amazonaws.com")
        self._plain = endpoint.scheme == "http"
        self._host = endpoint.netloc if address.path_style else f"{store.bucket}.{endpoint.netloc}"
        self._path = endpoint.path.rstrip("/") + (f"/{store.bucket}" if address.path_style else "")
        self._trust = None if self._plain else ssl.create_default_context(cafile=address.ca_file)
        self._mine = local()

    def writer(self, key: str) -> PartedWriter:
        """An object whose parts are sent, and nothing more."""
        return PartedWriter(self, key)

    def begin(self, key: str) -> str:
        """The name of a new upload."""
        return self._asked("POST", key, {"uploads": ""}, f"does not begin {key}").one_of("UploadId")

    def part(self, key: str, upload: str, nth: int, data: bytes) -> str:
        """Send part `nth`, from 1 on; its tag. Again it takes the place of the same."""
        return self._asked("PUT", key, {"partNumber": str(nth), "uploadId": upload}, f"does not take {key}", data).etag

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> bool:
        """Make the parts the object; False where there is no such upload (any more)."""
        parts = "".join(f"<Part><PartNumber>{nth}</PartNumber><ETag>{etag}</ETag></Part>" for nth, etag in enumerate(etags, 1))
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        answer = self._ask("POST", key, {"uploadId": upload}, body, f"does not complete {key}")
        if answer.status == _GONE and "NoSuchUpload" in answer.text:
            return False
        # one that fails late says so in an answer that began as a success
        self._check(answer, f"does not complete {key}")
        return True

    def abort(self, key: str, upload: str) -> None:
        """Delete its parts; no error where there is no such upload."""
        answer = self._ask("DELETE", key, {"uploadId": upload}, b"", f"does not abort {key}")
        if answer.status != _GONE:
            self._check(answer, f"does not abort {key}")

    def unfinished(self, key: str = "") -> Iterator[tuple[str, str]]:
        """(key, upload) of those whose keys begin with `key`."""
        marker: dict[str, str] = {}
        prefix = self._store.prefix + key
        while True:
            answer = self._asked("GET", None, {"uploads": "", "prefix": prefix} | marker, "does not list its uploads")
            found = zip(answer.all_of("Key"), answer.all_of("UploadId"), strict=False)
            yield from ((name.removeprefix(self._store.prefix), upload) for name, upload in found if name.startswith(prefix))
            if answer.one_of("IsTruncated") != "true":
                return
            marker = {"key-marker": answer.one_of("NextKeyMarker"), "upload-id-marker": answer.one_of("NextUploadIdMarker")}

    def make_bucket(self) -> None:
        """No error where it is there and ours."""
        answer = self._ask("PUT", None, {}, b"", "cannot be made")
        if "BucketAlreadyOwnedByYou" not in answer.text:
            self._check(answer, "cannot be made")

    def _asked(self, method: str, key: str | None, query: Mapping[str, str], what: str, body: bytes = b"") -> Answer:
        answer = self._ask(method, key, query, body, what)
        self._check(answer, what)
        return answer

    def _check(self, answer: Answer, what: str) -> None:
        if answer.status >= 300 or "<Error>" in answer.text:
            raise fault_of(self._store.address, answer.text or f"status {answer.status}", what)

    def _ask(self, method: str, key: str | None, query: Mapping[str, str], body: bytes, what: str) -> Answer:
        path = self._path + ("" if key is None else f"/{quote(self._store.prefix + key, safe='/-_.~')}")
        asked = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
        for tries in range(_TRIES):
            try:
                answer = self._send(method, path or "/", asked, body)
            except (OSError, http.client.HTTPException) as error:
                self._mine.connection = None
                if tries == _TRIES - 1 or isinstance(error, ssl.SSLCertVerificationError):
                    raise fault_of(self._store.address, str(error) or type(error).__name__, what) from None
            else:
                if answer.status < 500 or tries == _TRIES - 1:
                    return answer
            time.sleep(0.1 * 4**tries)
        raise AssertionError

    def _send(self, method: str, path: str, query: str, body: bytes) -> Answer:
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            if self._trust is None:
                connection = http.client.HTTPConnection(self._host, timeout=_TIMEOUT_S)
            else:
                connection = http.client.HTTPSConnection(self._host, timeout=_TIMEOUT_S, context=self._trust)
            self._mine.connection = connection
        connection.request(method, f"{path}?{query}" if query else path, body, self._signed(method, path, query, body))
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        return Answer(answer.status, answer.headers.get("ETag", ""), text)

    def _signed(self, method: str, path: str, query: str, body: bytes) -> dict[str, str]:
        """The headers, with the signature over them, as AWS's documentation of Signature Version 4 says."""
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(body).hexdigest()
        headers = {"host": self._host, "x-amz-content-sha256": digest, "x-amz-date": now}
        if self._login.token:
            headers["x-amz-security-token"] = self._login.token
        names = ";".join(sorted(headers))
        canonical = "\n".join((method, path, query, *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, digest))
        scope = f"{now[:8]}/{self._store.address.region}/s3/aws4_request"
        key = f"AWS4{self._login.secret}".encode()
        for part in scope.split("/"):
            key = _hmac(key, part)
        signature = _hmac(key, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}").hex()
        of = f"AWS4-HMAC-SHA256 Credential={self._login.key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return headers | {"authorization": of}


class PartedWriter(CountedWriter):
    """An object whose parts are at the store, and that `Uploads.complete` makes visible, in whatever process. See StoreWriter, but that
    `finish` only sends the last part: `upload` and `etags` are what is needed then."""

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
        """Of the parts, once it is finished."""
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


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
