"""Objects of a store with the S3 protocol, by obstore; errors become Scribengin errors."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING, Any, cast

from scribengin.connectors.objects.counted import CountedWriter
from scribengin.core.errors import EnvironmentFault, SinkError, Unreachable
from scribengin.core.store import StoreEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.objects.address import ObjectsAddress
    from scribengin.core.errors import ScribenginError

PART_BYTES = 8 * 2**20
"""part size of an object that is larger than one part; a store accepts none below 5 MiB, and at most 10,000 of them"""
PARTS_AT_ONCE = 4
CONNECT_S, REQUEST_S, RETRY_S, RETRIES = 5, 120, 10, 3
"""time limits and retries of the store's client"""
_ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
"""variables that the library reads by itself"""
_CODE = re.compile(r"<Code>(\w+)</Code>")
_GONE = "(code: NoSuchKey)"
"""the library's form of a store's answer about one key of many"""
_REFUSED = re.compile(r"status code\W+40[013]\b")
"""an answer to HEAD has no text"""
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
"""messages of stores whose disks are full: RFC 4918's 507, MinIO and Ceph; gateways to a file system use its own words"""


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
    """See Store; keys are relative to the address. Cheap to keep, not to create; not pickled."""

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
            if os.environ.get(name) == "":  # none, as for AWS's tools: the library would use it as an address
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
        """See Store. Some stores list a key in their answer that another process has deleted meanwhile: keys are then deleted one by
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
        """See Store. The store copies, then deletes."""
        with self._explained(f"failed to copy {key}"):
            self._obstore.copy(self._store, self.prefix + key, self.prefix + to)
        self.delete(key)

    def writer(self, key: str) -> S3Writer:
        """See Store."""
        with self._explained(f"failed to write {key}"):
            opened = self._obstore.open_writer(self._store, self.prefix + key, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        return S3Writer(self, opened, key)

    def abandon(self, key: str) -> None:
        """See Store. Without an own access key (with a role of the machine) parts stay, until the store's own rules delete them."""
        if self.login is not None:
            from scribengin.connectors.objects.uploads import Uploads

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
    """Whether the object itself does not exist: some stores also answer 404 for a missing bucket or access key. The answer to HEAD has no
    text."""
    found = _CODE.search(str(error))
    return found is None or found[1] == "NoSuchKey"


def fault_of(address: ObjectsAddress, text: str, what: str) -> ScribenginError:
    """The message of a store or its client, as a Scribengin error."""
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
