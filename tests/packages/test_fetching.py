"""Packages that come over HTTP: from whoever has them, whole and as their hash says, or not at all."""

from __future__ import annotations

import http.server
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import Refused, Unreachable
from scribengin.core.secret import Secret
from scribengin.packages.fetch import FetchedPackages
from scribengin.packages.package import PackedFlow, build_package
from scribengin.packages.store import PackageStore
from tests.served import served_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PACKAGE = build_package("shop", "1", (PackedFlow("shop", "flow.yaml"),), (), {"steps.py": b"x = 1\n", "flow.yaml": b""})
TOKEN = Secret("t0ken", "${TOKEN}")


@contextmanager
def master(packages: Mapping[str, bytes], *, token: str = "", cut: int = 0) -> Iterator[str]:
    """Answers as a master's API does: `id` → bytes. `cut`: so many bytes of each are left out."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = packages.get(self.path.removeprefix("/v1/packages/"))
            status = 401 if token and self.headers["Authorization"] != f"Bearer {token}" else 404 if data is None else 200
            self.send_response(status)
            body = data if status == 200 and data is not None else b"{}"
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) - cut])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with served_by(Handler) as address:
        yield address


@pytest.fixture
def store(tmp_path: Path) -> PackageStore:
    return PackageStore(tmp_path / "packages")


def left(store: PackageStore) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir()) if store.folder.is_dir() else []


def test_a_package_is_fetched_once_and_unpacked(store: PackageStore) -> None:
    with master({}) as empty, master({PACKAGE.id: PACKAGE.data}) as full:
        folder = FetchedPackages(store, lambda: [empty, full]).get(PACKAGE.id)
    assert (folder / "steps.py").read_bytes() == b"x = 1\n"
    assert FetchedPackages(store, lambda: []).get(PACKAGE.id) == folder, "nobody is asked for what is here"


def test_what_is_not_as_its_hash_says_is_refused_and_nothing_of_it_is_kept(store: PackageStore) -> None:
    with master({PACKAGE.id: PACKAGE.data + b" "}) as liar, pytest.raises(Refused, match="hash does not match") as caught:
        FetchedPackages(store, lambda: [liar]).get(PACKAGE.id)
    assert caught.value.code == "package-hash"
    assert left(store) == []


def test_after_one_who_has_it_wrong_the_next_is_asked(store: PackageStore) -> None:
    with master({PACKAGE.id: b"nonsense"}) as liar, master({PACKAGE.id: PACKAGE.data}) as full:
        FetchedPackages(store, lambda: [liar, full]).fetch(PACKAGE.id)
    assert left(store) == [f"{PACKAGE.id}.package"]


def test_an_answer_that_breaks_off_is_tried_again_and_nothing_of_it_is_kept(store: PackageStore) -> None:
    with master({PACKAGE.id: PACKAGE.data}, cut=7) as broken, pytest.raises(Unreachable):
        FetchedPackages(store, lambda: [broken]).fetch(PACKAGE.id)
    assert left(store) == []


def test_what_passes_by_itself_is_told_from_what_does_not(store: PackageStore) -> None:
    with master({}) as empty:
        with pytest.raises(Refused, match="no master has package") as caught:
            FetchedPackages(store, lambda: [empty]).fetch(PACKAGE.id)
        assert caught.value.code == "package-missing"
    with master({}) as empty, pytest.raises(Unreachable):
        FetchedPackages(store, lambda: ["http://127.0.0.1:9", empty]).fetch(PACKAGE.id)  # who is away may have it
    with pytest.raises(Unreachable, match="no master is available"):
        FetchedPackages(store, lambda: []).fetch(PACKAGE.id)


def test_a_token_is_shown_and_one_that_lacks_is_told(store: PackageStore) -> None:
    with master({PACKAGE.id: PACKAGE.data}, token="t0ken") as guarded:
        with pytest.raises(Unreachable, match="it answered 401"):
            FetchedPackages(store, lambda: [guarded]).fetch(PACKAGE.id)
        FetchedPackages(store, lambda: [guarded], token=TOKEN).fetch(PACKAGE.id)
    assert left(store) == [f"{PACKAGE.id}.package"]


def test_a_file_that_was_damaged_here_is_fetched_again(store: PackageStore) -> None:
    store.put([PACKAGE.data])
    file = store.file(PACKAGE.id)
    file.chmod(0o644)
    file.write_bytes(PACKAGE.data[:-1])
    with master({PACKAGE.id: PACKAGE.data}) as full:
        FetchedPackages(store, lambda: [full]).fetch(PACKAGE.id)
    assert store.read(PACKAGE.id) == PACKAGE
