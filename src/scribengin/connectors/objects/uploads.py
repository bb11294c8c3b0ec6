"""Multipart uploads that one process starts and another completes, which obstore does not offer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scribengin.connectors.objects.counted import CountedWriter
from scribengin.connectors.objects.s3 import PART_BYTES, PARTS_AT_ONCE
from scribengin.connectors.objects.signed import CONFLICT, EXISTS, GONE, SignedRequests

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from scribengin.connectors.objects.s3 import S3Store


class Uploads:
    """For one store. Keys are those of the store. Raises the store's errors."""

    def __init__(self, store: S3Store | SignedRequests) -> None:
        """For a store, or for a whole bucket. Raises SinkError if the store has no access key."""
        if isinstance(store, SignedRequests):
            self._requests, self._prefix = store, ""
        else:
            self._requests, self._prefix = SignedRequests(store.address, store.bucket), store.prefix

    def writer(self, key: str) -> PartedWriter:
        """An object whose parts are sent, but which is not completed."""
        return PartedWriter(self, key)

    def begin(self, key: str, headers: Mapping[str, str] | None = None) -> str:
        """The id of a new upload; `headers`: of the object, such as `x-amz-meta-…`."""
        return self._requests.asked(
            "POST", self._prefix + key, {"uploads": ""}, f"failed to start the upload of {key}", headers=headers
        ).one_of("UploadId")

    def part(self, key: str, upload: str, nth: int, data: bytes) -> str:
        """Send part `nth`, from 1 on; returns its tag. Sending a part again replaces it."""
        query = {"partNumber": str(nth), "uploadId": upload}
        return self._requests.asked("PUT", self._prefix + key, query, f"failed to write {key}", data).headers.get("ETag", "")

    def complete(self, key: str, upload: str, etags: Sequence[str], *, create: bool = False) -> bool:
        """Complete the upload; False if it does not exist (any more), or, with `create`, if the object exists."""
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
        """Delete its parts; no error if there is no such upload."""
        self._requests.asked("DELETE", self._prefix + key, {"uploadId": upload}, f"failed to abort {key}", known=(GONE,))

    def unfinished(self, key: str = "") -> Iterator[tuple[str, str]]:
        """(key, upload) of those whose keys begin with `key`."""
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
        """Ignore the error if the object exists and is ours."""
        answer = self._requests.asked("PUT", None, {}, "cannot be created", known=(CONFLICT,))
        if "BucketAlreadyOwnedByYou" not in answer.text:
            self._requests.check(answer, "cannot be created")


class PartedWriter(CountedWriter):
    """An object whose parts are in the store, and that `Uploads.complete` makes visible, in any process. See StoreWriter, but `finish` only
    sends the last part: `upload` and `etags` are needed to complete it."""

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
