"""Keyrings: which keys there are and which one writes, what is told of a wrong one, and that no key is ever shown."""

from __future__ import annotations

import base64
import os
import pickle
import traceback
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import ScribenginError, SinkError, SourceError, Unreachable
from scribengin.core.secret import Secret
from scribengin.formats.keyring import FILE_BYTES, Keyring
from scribengin.spark.failures import classify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

K1, K2, K3 = bytes(range(32)), bytes(range(100, 116)), bytes(range(200, 224))


def text(key: bytes) -> str:
    return base64.b64encode(key).decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "keys"
    found.write_text(f"# of the edge\n\nold {text(K1)}\n  new\t{text(K2)}  \n")
    found.chmod(0o600)
    return found


def test_the_last_line_writes_and_all_lines_read(path: Path) -> None:
    ring = Keyring(path)
    assert ring.writing() == ("new", K2)
    assert (ring.key("old"), ring.key("new")) == (K1, K2)


def test_appending_a_key_rotates_without_a_stop(path: Path) -> None:
    ring = Keyring(path)
    assert ring.writing() == ("new", K2)
    with path.open("a") as file:
        file.write(f"newer {text(K3)}\n")
    assert ring.writing() == ("newer", K3)
    assert ring.key("old") == K1


def test_a_file_in_its_place_of_the_same_size_and_time_is_read_again(path: Path) -> None:
    ring = Keyring(path)
    ring.writing()
    before = path.stat()
    other = path.with_name("other")
    other.write_text(path.read_text().replace(text(K2), text(bytes(16))))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(path)
    assert ring.writing() == ("new", bytes(16))


def test_a_file_that_has_not_changed_is_not_read_again(path: Path) -> None:
    ring = Keyring(path)
    ring.writing()
    before = path.stat()
    path.write_text(path.read_text().replace(text(K2), text(bytes(16))))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ring.writing() == ("new", K2)
    os.utime(path)
    assert ring.writing() == ("new", bytes(16))


@pytest.mark.parametrize("cut", range(1, 44))
def test_a_key_that_is_still_being_written_is_passed_over(path: Path, cut: int) -> None:
    ring = Keyring(path)
    with path.open("a") as file:
        file.write(f"newer {text(K1)[:cut]}")
    assert ring.writing() == ("new", K2)
    assert ring.notices() == [f"line 5 of the keyring {path} is not used yet: it has no line feed and is not a complete key"]
    with path.open("a") as file:
        file.write(f"{text(K1)[cut:]}\n")
    assert ring.writing() == ("newer", K1)
    assert ring.notices() == []


def test_an_id_that_is_still_being_written_is_passed_over(path: Path) -> None:
    with path.open("a") as file:
        file.write("newe")
    assert Keyring(path).writing() == ("new", K2)


@pytest.mark.parametrize("key", [K1, K2])
def test_a_whole_last_line_needs_no_line_feed(path: Path, key: bytes) -> None:
    path.write_text(f"k {text(key)}")
    assert Keyring(path).writing() == ("k", key)


def test_a_repeated_line_makes_its_key_the_one_that_writes(path: Path) -> None:
    with path.open("a") as file:
        file.write(f"old {text(K1)}\n")
    assert Keyring(path).writing() == ("old", K1)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "it has no key"),
        ("# nothing\n\n", "it has no key"),
        ("AAAA\n", "line 1 has 1 word; expected `ID BASE64`"),
        (f"\nk1 {text(K1)} more\n", "line 2 has 3 words; expected `ID BASE64`"),
        ("k1 not-base64!\n", "line 1 has a key that is not valid base64"),
        (f"k1 {text(K1)}x\n", "line 1 has a key that is not valid base64"),
        ("k1 AAAA\n", "line 1 has a key of 3 bytes; keys have 16, 24 or 32"),
        (f"{text(K1)} k1\n", "line 1 does not begin with a valid id"),
        (f"k1 {text(K1)}\nk1 {text(K2)}\n", "line 2 has the id of an earlier line, but another key"),
        (f"k1 {text(K1)}\nk2 AAAA\nk3 {text(K3)}\n", "line 2 has a key of 3 bytes"),
        (f"k1 {text(K3)}", "line 1 has no line feed"),
        ("\N{LATIN SMALL LETTER U WITH DIAERESIS} AAAA\n", "line 1 does not begin with a valid id"),
        ("#" * (FILE_BYTES + 1), f"it is longer than {FILE_BYTES} bytes"),
    ],
)
def test_a_wrong_file_is_told_by_its_line_with_what_to_do(path: Path, content: str, told: str) -> None:
    path.write_text(content)
    for ask, kind in ((Keyring(path).writing, SinkError), (lambda: Keyring(path).key("k1"), SourceError)):
        with pytest.raises(kind) as caught:
            ask()
        assert caught.value.message.startswith(f"the keyring {path}: {told}")
        assert caught.value.code == "keyring"
        assert caught.value.remedy
        assert classify(caught.value)[1] == "permanent"


def test_bytes_that_are_no_text_are_told_as_a_wrong_line(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00 \x80\n")
    with pytest.raises(SinkError, match="line 1 does not begin with a valid id"):
        Keyring(path).writing()


def test_a_file_that_is_not_there_stops_writing_and_makes_reading_try_again(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "none")
    with pytest.raises(SinkError, match="does not exist") as caught:
        ring.writing()
    assert caught.value.remedy
    with pytest.raises(Unreachable, match="does not exist") as waits:
        ring.key("k1")
    assert classify(waits.value) == (waits.value, "transient")
    assert ring.notices() == []


def test_a_key_that_is_not_there_makes_reading_try_again_and_says_that_nothing_is_lost(path: Path) -> None:
    ring = Keyring(path)
    with pytest.raises(Unreachable) as caught:
        ring.key("older")
    assert caught.value.message == f"the keyring {path} does not have key older; found old, new"
    assert "no data is lost" in caught.value.remedy
    assert "retried" in caught.value.remedy
    assert classify(caught.value) == (caught.value, "transient")
    with path.open("a") as file:
        file.write(f"older {text(K3)}\n")
    assert ring.key("older") == K3


def test_what_a_worker_says_of_a_missing_key_is_tried_again(path: Path) -> None:
    with pytest.raises(Unreachable) as caught:
        Keyring(path).key("older")
    told = RuntimeError("Job aborted\n" + "".join(traceback.format_exception(caught.value)))
    ours, fate = classify(told)
    assert (type(ours), ours.code, fate) == (Unreachable, "key-missing", "transient")
    assert ours.remedy == caught.value.remedy


def test_a_folder_instead_of_a_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="cannot be read"):
        Keyring(tmp_path).writing()
    with pytest.raises(SourceError, match="cannot be read"):
        Keyring(tmp_path).key("k")


def test_a_file_that_others_can_read_gets_a_notice_and_no_error(path: Path) -> None:
    ring = Keyring(path)
    assert ring.notices() == []
    path.chmod(0o640)
    assert ring.notices() == [f"users other than the owner can read or write the keyring {path}; run: chmod 600 {path}"]
    assert ring.writing() == ("new", K2)


def test_given_keys_are_taken_as_texts_and_as_secrets() -> None:
    ring = Keyring.of({"a": Secret(text(K1), "${secret:env/A}"), "b": text(K2)}, "a")
    assert (ring.writing(), ring.key("b"), ring.notices()) == (("a", K1), K2, [])
    assert Keyring.of({"a": text(K3)}).writing() == ("a", K3)


@pytest.mark.parametrize(
    ("keys", "use", "told"),
    [
        ({}, None, "there is no key"),
        ({"a": text(K1), "b": text(K2)}, None, "there are 2, but no `use` that names the one that encrypts"),
        ({"a": text(K1)}, "b", "`use: b` is not one of the keys; they are a"),
        ({"a": text(K1), "b": "AAAA"}, "a", "the 2. has a key of 3 bytes"),
        ({"a b": text(K1)}, None, "the 1. has 3 words"),
        ({"a": "***"}, None, "the 1. has a key that is not valid base64"),
    ],
)
def test_wrong_given_keys_are_told(keys: dict[str, str], use: str | None, told: str) -> None:
    with pytest.raises(SourceError, match="the keys: ") as caught:
        Keyring.of(keys, use)
    assert told in caught.value.message
    assert caught.value.remedy


def test_a_keyring_survives_pickling_and_a_file_is_read_anew_where_it_arrives(path: Path) -> None:
    ring = Keyring(path)
    ring.writing()
    data = pickle.dumps(ring)
    for key in (K1, K2):
        assert key not in data
        assert text(key).encode() not in data
    with path.open("a") as file:
        file.write(f"newer {text(K3)}\n")
    assert pickle.loads(data).writing() == ("newer", K3)
    given = pickle.loads(pickle.dumps(Keyring.of({"a": Secret(text(K1), "${secret:env/A}")})))
    assert given.writing() == ("a", K1)
    assert repr(given) == "the keys a"


def test_no_key_and_no_line_is_ever_shown(path: Path) -> None:
    rings = [Keyring(path), Keyring.of({"a": text(K1), "b": Secret(text(K2), "${secret:env/B}")}, "b")]
    shown = []
    for ring in rings:
        ring.writing()
        shown += [repr(ring), str(ring), repr(vars(ring).get("_read")), repr(ring.notices())]
        shown.append(_told(lambda ring=ring: ring.key("nobody")))
    for line in (f"{text(K1)} k1", text(K1), f"k1 {text(K1)} {text(K1)}", f"k1 {text(K1)}=", f"k1 {text(K1)[:-4]}", text(K1)[:20] + " x"):
        path.write_text(line + "\n")
        shown += [_told(Keyring(path).writing), _told(lambda: Keyring(path).key("k1"))]
    shown.append(_told(lambda: Keyring.of({text(K1): "k1"})))
    shown.append(_told(lambda: Keyring.of({"k1": text(K1) + "="})))
    for line in shown:
        for key in (K1, K2):
            assert text(key)[:8] not in line
            assert repr(key)[2:20] not in line


def _told(ask: Callable[[], object]) -> str:
    with pytest.raises(ScribenginError) as caught:
        ask()
    return "".join(traceback.format_exception(caught.value))
