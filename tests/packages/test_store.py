"""The store of a host: whole or not there, whoever dies or comes at the same time; and what is no package is refused by name."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import msgspec
import pytest

from scribengin.core.errors import Refused
from scribengin.packages.make import make_package
from scribengin.packages.package import LIMIT_FILE_BYTES, MANIFEST, build_package, open_package
from scribengin.packages.store import PackageStore, read_package, read_pieces

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.packages.package import Package

KILLED_AT_STEP = """
import os, signal, sys
from pathlib import Path
from scribengin.packages import store

left = int(sys.argv[3])

def dying(call):
    def counted(*args, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)
    return counted

# every step that makes something durable or visible
os.fsync, os.rename, os.replace, os.mkdir = dying(os.fsync), dying(os.rename), dying(os.replace), dying(os.mkdir)
kept, id = store.PackageStore(Path(sys.argv[1])), sys.argv[4]
if sys.argv[2] != "-":
    kept.put(store.read_pieces(Path(sys.argv[2])), id)
kept.get(id)
"""
TOGETHER = """
import sys, time
from pathlib import Path
from scribengin.packages.store import PackageStore, read_pieces

store, id = PackageStore(Path(sys.argv[1])), sys.argv[3]
(store.folder.parent / f"ready-{sys.argv[4]}").touch()
deadline = time.monotonic() + 120
while not (store.folder.parent / "go").exists() and time.monotonic() < deadline:
    pass
store.put(read_pieces(Path(sys.argv[2])), id)
print(store.get(id))
"""


@pytest.fixture
def package(folder: Path) -> Package:
    return make_package(folder, {}).package


@pytest.fixture
def store(tmp_path: Path) -> PackageStore:
    return PackageStore(tmp_path / "host" / "packages")


def refused(action: Callable[[], object]) -> str:
    """The code of the refusal."""
    with pytest.raises(Refused) as told:
        action()
    assert told.value.message
    assert told.value.remedy
    return told.value.code


def pieces(data: bytes, size: int = 700) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_put_by_pieces_is_unpacked_read_only(package: Package, store: PackageStore) -> None:
    assert store.put(pieces(package.data), package.id) == package
    assert [(each.id, each.unpacked) for each in store.packages()] == [(package.id, False)]
    folder = store.get(package.id)
    assert folder == store.folder / package.id
    assert contents(folder) == dict(package.content)
    assert not any(path.stat().st_mode & 0o222 for path in (folder, *folder.rglob("*")))
    made = folder.stat().st_mtime_ns
    assert store.get(package.id) == folder
    assert folder.stat().st_mtime_ns == made
    assert store.put(pieces(package.data)).id == package.id
    assert [path.name for path in store.folder.iterdir() if path.name.startswith(".")] == []


def test_other_bytes_than_the_hash_says_are_refused_and_nothing_is_kept(package: Package, store: PackageStore) -> None:
    changed = bytearray(package.data)
    changed[len(changed) // 2] ^= 1
    assert refused(lambda: store.put(pieces(bytes(changed)), package.id)) == "package-hash"
    assert refused(lambda: store.put(pieces(package.data[:-10]), package.id)) == "package-hash"
    assert refused(lambda: store.put(pieces(package.data), "0" * 64)) == "package-hash"
    assert refused(lambda: store.put([b"PK no package"])) == "package-damaged"
    assert refused(lambda: store.put([])) == "package-damaged"
    assert refused(lambda: store.put(b"x" * 2**20 for _ in iter(int, 1))) == "package-size"
    assert list(store.folder.iterdir()) == []
    assert refused(lambda: store.get(package.id)) == "package-missing"


def test_a_file_that_was_exchanged_or_cut_on_the_disk_is_told(package: Package, store: PackageStore, folder: Path) -> None:
    store.put([package.data], package.id)
    (folder / "steps.py").write_text("def marked(row):\n    return None\n")
    other = make_package(folder, {}).package
    file = store.file(package.id)
    for data in (other.data, package.data[:-1], b""):
        file.unlink()
        file.write_bytes(data)
        assert refused(lambda: store.get(package.id)) == "package-hash"
        assert refused(lambda: store.verify(package.id)) == "package-hash"
    assert not (store.folder / package.id).exists()
    store.put([package.data], package.id)
    assert contents(store.get(package.id)) == dict(package.content)


@pytest.mark.parametrize("change", ["changed", "longer", "gone", "added"])
def test_what_was_changed_after_it_was_unpacked_is_told(package: Package, store: PackageStore, change: str) -> None:
    store.put([package.data], package.id)
    folder = store.get(package.id)
    for path in (folder, folder / "lib", folder / "lib" / "names.py"):
        path.chmod(0o755)
    match change:
        case "changed":
            (folder / "lib" / "names.py").write_text("MARK = 1\nSINK = 'kept'\n")
        case "longer":
            (folder / "lib" / "names.py").write_text("MARK = 0\nSINK = 'kept'\nprint()\n")
        case "gone":
            (folder / "lib" / "names.py").unlink()
        case "added":
            (folder / "orjson.py").write_text("")
    assert refused(lambda: store.get(package.id)) == "package-hash"
    assert refused(lambda: store.verify(package.id)) == "package-hash"


def test_what_python_compiles_beside_the_modules_is_no_change(package: Package, store: PackageStore) -> None:
    store.put([package.data], package.id)
    folder = store.get(package.id)
    (folder / "lib").chmod(0o755)
    (folder / "lib" / "__pycache__").mkdir()
    (folder / "lib" / "__pycache__" / "names.cpython-311.pyc").write_bytes(b"compiled")
    store.verify(package.id)


@pytest.mark.parametrize("id_", ["", "../escape", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_only_hashes_name_packages(store: PackageStore, id_: str) -> None:
    assert refused(lambda: store.get(id_)) == "package-id"
    assert refused(lambda: store.put([b""], id_)) == "package-id"


@pytest.mark.timeout(600)
def test_a_kill_at_any_step_leaves_the_whole_or_nothing(package: Package, store: PackageStore, tmp_path: Path) -> None:
    file = tmp_path / "a.package"
    file.write_bytes(package.data)
    ended = None
    for step in range(100):
        called = [sys.executable, "-c", KILLED_AT_STEP, str(store.folder), str(file), str(step), package.id]
        ended = subprocess.run(called, capture_output=True, text=True, check=False)
        there = store.packages()
        assert [each.id for each in there] in ([], [package.id])
        if there:
            store.verify(package.id)
            unpacked = store.folder / package.id
            assert not unpacked.exists() or contents(unpacked) == dict(package.content)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert ended is not None
    assert ended.returncode == 0
    assert step > 15, "hardly any step was struck"
    drafts = [path for path in store.folder.iterdir() if path.name.startswith(".")]
    assert drafts, "no kill left a draft: the steps are not where they should be"
    assert store.keep([package.id]) == ()
    assert [path for path in drafts if path.exists()] == drafts, "a young draft may have a living writer"
    for draft in drafts:
        os.utime(draft, (1, 1))
    store.keep([package.id])
    assert sorted(path.name for path in store.folder.iterdir()) == [package.id, f"{package.id}.package"]


@pytest.mark.timeout(300)
def test_several_processes_unpack_at_once(package: Package, store: PackageStore, tmp_path: Path) -> None:
    file = tmp_path / "a.package"
    file.write_bytes(package.data)
    store.folder.mkdir(parents=True)
    called = [sys.executable, "-c", TOGETHER, str(store.folder), str(file), package.id]
    running = [subprocess.Popen([*called, str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for n in range(4)]
    try:
        while not all((store.folder.parent / f"ready-{n}").exists() for n in range(4)):
            assert all(process.poll() is None for process in running)
        (store.folder.parent / "go").touch()
        said = [process.communicate(timeout=120) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [out.strip() for out, _ in said] == [str(store.folder / package.id)] * 4, said
    assert contents(store.folder / package.id) == dict(package.content)
    assert sorted(path.name for path in store.folder.iterdir()) == [package.id, f"{package.id}.package"]


def test_only_what_is_named_is_kept(package: Package, store: PackageStore, folder: Path) -> None:
    (folder / "steps.py").write_text("def marked(row):\n    return True\n")
    newer = make_package(folder, {}).package
    for each in (package, newer):
        store.put([each.data])
        store.get(each.id)
    (store.folder / "notes.txt").write_text("somebody's")
    assert store.keep([newer.id]) == (package.id,)
    assert [each.id for each in store.packages()] == [newer.id]
    assert sorted(path.name for path in store.folder.iterdir()) == sorted([newer.id, f"{newer.id}.package", "notes.txt"])
    store.verify(newer.id)


def test_a_file_is_read_for_a_look_without_a_store(package: Package, tmp_path: Path) -> None:
    file = tmp_path / "a.package"
    file.write_bytes(package.data)
    assert read_package(file) == package
    assert b"".join(read_pieces(file)) == package.data
    assert refused(lambda: read_package(tmp_path / "b.package")) == "package-missing"
    assert refused(lambda: read_package(tmp_path)) == "package-missing"


# what somebody made by hand


def archive(entries: list[tuple[zipfile.ZipInfo | str, bytes]], *, compression: int = zipfile.ZIP_STORED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # of names that come twice
        for name, data in entries:
            file.writestr(name, data)
    return written.getvalue()


def manifest(files: dict[str, bytes], **changes: object) -> bytes:
    listed = [{"path": path, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for path, data in files.items()]
    said: dict[str, object] = {
        "kind": "scribengin-package",
        "format": 1,
        "name": "a",
        "scribengin": "0",
        "flows": [{"name": "a", "path": "a.yaml"}],
        "files": listed,
    }
    return msgspec.json.encode(said | changes)


def of(files: dict[str, bytes], **changes: object) -> bytes:
    return archive([(MANIFEST, manifest(files, **changes)), *files.items()])


def link(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system = 3
    entry.external_attr = 0o120777 << 16
    return entry


A = {"a.yaml": b"version: 1\n"}
BOMB = b"\0" * (20 * 2**20)
FORGED: dict[str, tuple[str, bytes]] = {
    "above": ("package-damaged", of(A | {"../steps.py": b"1"})),
    "absolute": ("package-damaged", of(A | {"/tmp/steps.py": b"1"})),
    "dots in the middle": ("package-damaged", of(A | {"lib/../../steps.py": b"1"})),
    "backslashes": ("package-damaged", of(A | {"..\\steps.py": b"1"})),
    "a drive": ("package-damaged", of(A | {"C:/steps.py": b"1"})),
    "a link": (
        "package-damaged",
        archive([(MANIFEST, manifest(A | {"steps.py": b"/etc/passwd"})), *A.items(), (link("steps.py"), b"/etc/passwd")]),
    ),
    "a folder": ("package-damaged", archive([(MANIFEST, manifest(A)), *A.items(), ("lib/", b"")])),
    "a file in a file": ("package-damaged", of(A | {"lib": b"1", "lib/steps.py": b"1"})),
    "an entry twice": ("package-damaged", archive([(MANIFEST, manifest(A)), *A.items(), *A.items()])),
    "compressed": ("package-damaged", archive([(MANIFEST, manifest(A)), *A.items()], compression=zipfile.ZIP_DEFLATED)),
    "a bomb": (
        "package-damaged",
        archive([(MANIFEST, manifest(A | {"b": BOMB})), *A.items(), ("b", BOMB)], compression=zipfile.ZIP_DEFLATED),
    ),
    "too many": ("package-damaged", archive([(f"f{n}", b"") for n in range(10_001)])),
    "not listed": ("package-damaged", archive([(MANIFEST, manifest(A)), *A.items(), ("steps.py", b"1")])),
    "listed and not there": ("package-damaged", archive([(MANIFEST, manifest(A | {"steps.py": b"1"})), *A.items()])),
    "other content": ("package-hash", archive([(MANIFEST, manifest({"a.yaml": b"version: 2\n"})), *A.items()])),
    "no manifest": ("package-damaged", archive([*A.items()])),
    "a manifest that is none": ("package-damaged", archive([(MANIFEST, b"[1]"), *A.items()])),
    "a manifest that is cut": ("package-damaged", archive([(MANIFEST, manifest(A)[:-5]), *A.items()])),
    "a manifest of other types": ("package-damaged", of(A, name=5)),
    "a newer format": ("package-newer", of(A, format=2)),
    "no flow": ("package-damaged", of(A, flows=[])),
    "a flow twice": ("package-damaged", of(A, flows=[{"name": "a", "path": "a.yaml"}] * 2)),
    "a flow that is not there": ("package-damaged", of(A, flows=[{"name": "a", "path": "b.yaml"}])),
    "no archive": ("package-damaged", b"version: 1\n"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_what_is_no_package_is_refused_before_anything_is_unpacked(kind: str, store: PackageStore) -> None:
    code, data = FORGED[kind]
    assert refused(lambda: store.put([data])) == code
    assert list(store.folder.iterdir()) == []


def test_a_package_that_is_made_by_hand_and_right_is_taken() -> None:
    assert open_package(of(A), "here").content == A


def test_sizes_that_are_declared_and_not_held_are_refused(package: Package) -> None:
    """The directory of the archive says another size than the entry has: bytes 20 to 27 of its record."""
    at = package.data.index(b"PK\x01\x02")
    for size in (1, 2**31):
        forged = bytearray(package.data)
        forged[at + 20 : at + 28] = size.to_bytes(4, "little") * 2
        assert refused(lambda data=bytes(forged): open_package(data, "here")) == "package-damaged"


def test_every_byte_of_a_package_counts(package: Package) -> None:
    """A package with any byte changed is another one, or none; the format of its content is never taken for the one of that hash."""
    for at in range(0, len(package.data), 97):
        changed = bytearray(package.data)
        changed[at] ^= 0x55
        assert refused(lambda data=bytes(changed): open_package(data, "here", expected=package.id)) == "package-hash"


def test_bounds_hold_for_the_whole_file() -> None:
    package = build_package("a", "0", [], [], A)
    assert refused(lambda: open_package(package.data, "here")) == "package-damaged"
    assert refused(lambda: open_package(b"x" * (LIMIT_FILE_BYTES + 1), "here")) == "package-damaged"
