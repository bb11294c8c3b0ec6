"""Where what runs differs from the flow file that it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2

from scribengin.client.models import Submit
from scribengin.registry.record_io import put
from scribengin.registry.records import Workers
from scribengin.registry.tree import WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Bench, Served


def file_of(master: Served, flow: str = "numbers") -> dict[str, Any]:
    answer = httpx2.get(f"{master.url}/v1/flows/{flow}/file", timeout=120)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_what_commands_have_set_is_named_with_what_undoes_it(bench: Bench, says: Callable[..., dict[str, Any]]) -> None:
    master, package = bench.master(), bench.package()
    bench.client().apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    assert file_of(master)["differences"] == []

    assert says("scale", "numbers.main", "--cores", "3", "--memory", "2GiB")["status"] == 0
    assert says("limit", "numbers", "--rows-per-second", "500")["status"] == 0
    assert says("limit", "numbers:numbers", "--bytes-per-second", "1MiB")["status"] == 0
    bench.person.commit(put(bench.person, WORKERS("numbers"), Workers(tiers={"main": 2})))
    found = file_of(master)
    assert [(each["what"], each["file"], each["runs"]) for each in found["differences"]] == [
        ("cores of tier main", "1", "3"),
        ("memory of tier main", "Spark's default", "2.0 GiB"),
        ("workers of tier main", "1", "2"),
        ("limit of the flow", "none", "500 rows/s"),
        ("limit of numbers", "none", "1,048,576 bytes/s"),
    ]
    for each in found["differences"]:
        if each["undo"]:
            assert says(*each["undo"].split()[1:])["status"] == 0, each["undo"]
    assert [each["what"] for each in file_of(master)["differences"]] == ["memory of tier main"], "no command sets Spark's default again"


def test_a_version_that_is_not_the_newest_is_a_difference(bench: Bench, says: Callable[..., dict[str, Any]]) -> None:
    master = bench.master()
    for text in (bench.flow, bench.flow.replace("id % 2 = 1", "id % 2 = 0")):
        package = bench.package(text)
        bench.client().apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data, accept="again")
    assert says("rollback", "numbers", "1")["status"] == 0
    [found] = file_of(master)["differences"]
    assert (found["what"], found["file"], found["runs"], found["undo"]) == ("desired version", "2", "1", "scribengin rollback numbers 2")


def test_the_file_is_shown_as_it_is_now_if_it_is_here(bench: Bench) -> None:
    master, package = bench.master(), bench.package()
    bench.client().apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    file = bench.folder / "flow.yaml"
    assert (file_of(master)["text"], file_of(master)["path"]) == (bench.flow, str(file))
    file.unlink(missing_ok=True)
    assert file_of(master)["now"] is None
    file.write_text(bench.flow.replace("id % 2", "id % 3"))
    assert "id % 3" in file_of(master)["now"]
    file.write_text("root:x:0:0:root\n")
    assert file_of(master)["now"] is None, "only a flow file of this flow is shown"
    file.write_text(bench.flow.replace("numbers", "others", 1))
    assert file_of(master)["now"] is None
