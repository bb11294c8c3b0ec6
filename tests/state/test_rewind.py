import shutil
from itertools import count
from pathlib import Path

import pytest

from scribengin.core import storage
from scribengin.core.errors import Refused
from scribengin.state.dead_letters import read_letters
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder
from scribengin.state.lineage import finish_rewind, past_lineages, read_lineage, rewind
from scribengin.testing.protocol import SOURCE, Driver, Job


@pytest.fixture
def query(tmp_path: Path) -> QueryFolder:
    job = Job(tmp_path / "state", tmp_path / "out", batches=4, rows=40)
    Driver(job).run()
    return job.query


def test_what_was_decided_stays_with_its_lineage(query: QueryFolder) -> None:
    old, decided, letters = read_lineage(query), list(Decisions(query.decisions).since()), list(read_letters(query))
    begun = rewind(query, {SOURCE: 2})
    assert old is not None
    assert read_lineage(query) == begun
    assert (begun.parent, begun.starts, begun.owner) == (old.id, {SOURCE: 2}, old.owner)
    assert not query.checkpoint.exists()
    assert Decisions(query.decisions).newest() is None
    ((past, left),) = past_lineages(query)
    assert left == old
    assert list(Decisions(past.decisions).since()) == decided
    assert list(read_letters(past)) == letters


class _PulledError(Exception):
    pass


def test_a_rewind_may_be_killed_at_any_step(query: QueryFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every write and every rename; what is completed is the same."""
    decided = list(Decisions(query.decisions).since())
    begun_at = 0
    for survived in count():
        copy = QueryFolder(tmp_path / f"copy{survived}" / query.name)
        shutil.copytree(query.path, copy.path)
        with monkeypatch.context() as patched:
            steps = count()

            def dying(step, steps=steps, survived=survived):  # type: ignore[no-untyped-def]
                def run(*args, **options):  # type: ignore[no-untyped-def]
                    if next(steps) >= survived:
                        raise _PulledError
                    return step(*args, **options)

                return run

            for name in ("make_folder", "sync_folder", "remove_tree", "replace", "put_if_absent"):
                patched.setattr(storage, name, dying(getattr(storage, name)))
            for name in ("rename", "unlink"):
                patched.setattr(Path, name, dying(getattr(Path, name)))
            try:
                rewind(copy, {SOURCE: 1})
            except _PulledError:
                pass
            else:
                break
        if not copy.rewind.exists() and not past_lineages(copy):
            begun_at = survived  # nothing has happened yet
            assert list(Decisions(copy.decisions).since()) == decided
            continue
        if copy.rewind.exists():
            with pytest.raises(Refused, match="was interrupted"):
                read_lineage(copy)
        finish_rewind(copy)
        lineage = read_lineage(copy)
        assert lineage is not None
        assert lineage.starts == {SOURCE: 1}
        ((past, _),) = past_lineages(copy)
        assert list(Decisions(past.decisions).since()) == decided
        assert Decisions(copy.decisions).newest() is None
        assert not copy.checkpoint.exists()
    assert survived > begun_at + 8


def test_a_driver_that_writes_into_a_rewind_does_not_stop_it(query: QueryFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleeper_wakes(folder: Path) -> None:
        (query.dead / "0000000004").mkdir(parents=True)
        raise _PulledError(folder)

    with monkeypatch.context() as patched:
        patched.setattr(storage, "remove_tree", sleeper_wakes)
        with pytest.raises(_PulledError):
            rewind(query, {SOURCE: 2})
    finish_rewind(query)
    ((past, _),) = past_lineages(query)
    assert list(read_letters(past))
    assert list(read_letters(query)) == []
