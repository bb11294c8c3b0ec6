import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scribengin.core.errors import FencedError, Refused
from scribengin.state.folder import StateFolder, renew_owner
from scribengin.state.lease import read_holder, take_lease


def test_an_installation_keeps_its_id(tmp_path: Path) -> None:
    first = StateFolder(tmp_path / "state", "f").read_owner()
    assert StateFolder(tmp_path / "state", "g").read_owner() == first


def test_a_moved_state_folder_stays_the_same_installation(tmp_path: Path) -> None:
    owner = StateFolder(tmp_path / "state", "f").read_owner()
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    assert StateFolder(tmp_path / "elsewhere", "f").read_owner() == owner


def test_a_copy_beside_its_original_is_refused_until_it_is_renewed(tmp_path: Path) -> None:
    owner = StateFolder(tmp_path / "state", "f").read_owner()
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    with pytest.raises(Refused, match="is a copy of"):
        StateFolder(tmp_path / "copy", "f").read_owner()
    assert StateFolder(tmp_path / "state", "f").read_owner() == owner
    renewed = renew_owner(tmp_path / "copy")
    assert renewed != owner
    assert StateFolder(tmp_path / "copy", "f").read_owner() == renewed


def test_a_copy_whose_original_is_gone_goes_on(tmp_path: Path) -> None:
    owner = StateFolder(tmp_path / "state", "f").read_owner()
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    shutil.rmtree(tmp_path / "state")
    assert StateFolder(tmp_path / "copy", "f").read_owner() == owner


def test_a_held_lease_is_refused_and_names_its_holder(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "f")
    assert read_holder(folder) is None
    with take_lease(folder) as lease:
        with pytest.raises(Refused, match=f"process {os.getpid()} on "):
            take_lease(folder)
        holder = read_holder(folder)
        assert holder is not None
        assert (holder.pid, holder.term) == (os.getpid(), lease.term)
    assert read_holder(folder) is None


def test_who_only_looks_who_holds_a_lease_keeps_nobody_from_taking_it(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "f")
    take_lease(folder).release()
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            read_holder(folder)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(200):
            take_lease(folder).release()
    finally:
        ended.set()
        for looker in lookers:
            looker.join()


def test_the_term_rises_at_each_take_even_when_the_lock_file_was_deleted(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "f")
    terms = []
    for _ in range(15):
        with take_lease(folder) as lease:
            terms.append(lease.term)
        folder.lock.unlink()
    assert terms == list(range(1, 16))
    assert len(list((folder.path / "terms").iterdir())) <= 11


def test_a_lease_whose_lock_was_taken_away_is_lost(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "f")
    with take_lease(folder) as lease:
        lease.check()
        folder.lock.unlink()
        with pytest.raises(FencedError, match="was removed"):
            lease.check()
        with take_lease(folder) as successor:
            assert successor.term == lease.term + 1
            successor.check()
            with pytest.raises(FencedError, match="a newer driver holds it"):
                lease.check()
    with pytest.raises(FencedError, match="was released"):
        successor.check()


def test_a_replaced_lock_file_and_an_emptied_folder_lose_the_lease(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "f")
    with take_lease(folder) as lease:
        content = folder.lock.read_bytes()
        folder.lock.rename(tmp_path / "kept")
        folder.lock.write_bytes(content)
        with pytest.raises(FencedError, match="was replaced"):
            lease.check()
    with take_lease(folder) as lease:
        shutil.rmtree(folder.path / "terms")
        with pytest.raises(FencedError, match="was emptied"):
            lease.check()


HOLDER = """
import pathlib, signal, sys
from scribengin.state.folder import StateFolder
from scribengin.state.lease import take_lease
lease = take_lease(StateFolder(pathlib.Path(sys.argv[1]), "f"))
print("held", flush=True)
signal.pause()
"""


def test_the_lease_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Refused, match=f"process {holder.pid} on "):
            take_lease(StateFolder(tmp_path, "f"))
        holder.kill()
        with take_lease(StateFolder(tmp_path, "f"), wait_s=10) as lease:
            assert lease.term == 2


class _Right:
    """A right as a registry gives it."""

    path = "flows/f/tiers/main/lease"

    def __init__(self) -> None:
        self.over = False

    def check(self) -> None:
        if self.over:
            raise FencedError("the right is over")


def test_a_lease_is_lost_with_the_right_that_it_was_taken_by(tmp_path: Path) -> None:
    right = _Right()
    with take_lease(StateFolder(tmp_path, "f"), right=right) as lease:
        lease.check()
        right.over = True
        with pytest.raises(FencedError, match="the right is over"):
            lease.check()


def test_who_has_the_right_takes_the_lock_from_who_had_it_before_and_hangs(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "f")
    asleep = take_lease(folder, right=_Right())
    with take_lease(folder, right=_Right()) as successor:
        successor.check()
        assert successor.term == asleep.term + 1
        with pytest.raises(FencedError, match="a newer driver holds it"):
            asleep.check()
    asleep.release()


def test_a_right_takes_nothing_from_a_person_who_runs_the_flow_beside_it(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "f")
    with take_lease(folder) as lease:
        with pytest.raises(Refused, match="already running"):
            take_lease(folder, right=_Right())
        lease.check()


def test_a_right_that_is_over_takes_nothing(tmp_path: Path) -> None:
    folder, over = StateFolder(tmp_path, "f"), _Right()
    over.over = True
    with take_lease(folder, right=_Right()) as lease:
        with pytest.raises(FencedError, match="the right is over"):
            take_lease(folder, right=over)
        lease.check()
