"""Packages over HTTP: whole, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import Refused
from scribengin.packages.package import LIMIT_FILE_BYTES
from scribengin.packages.store import PackageStore

if TYPE_CHECKING:
    from conftest import Bench


def test_a_package_goes_from_host_to_host_by_its_hash(bench: Bench) -> None:
    master = bench.master()
    client = bench.client()
    package = bench.package()
    assert not client.has_package(package.id)
    assert client.upload(package.id, package.data).size == len(package.data)
    assert client.has_package(package.id)
    there = PackageStore(bench.folder / "elsewhere")
    assert there.put(client.download(package.id), package.id).id == package.id
    assert (there.get(package.id) / "flow.yaml").read_text() == (master.packages.get(package.id) / "flow.yaml").read_text()


def test_a_wrong_hash_is_refused_and_nothing_is_kept(bench: Bench) -> None:
    master = bench.master()
    package = bench.package()
    with pytest.raises(Refused) as told:
        bench.client().upload("0" * 64, package.data)
    assert told.value.code == "package-hash"
    with pytest.raises(Refused):
        bench.client().upload(package.id, package.data[:-1])
    assert list(master.packages.folder.iterdir()) == []


def test_more_than_a_package_may_have_is_refused(bench: Bench) -> None:
    master = bench.master()
    pieces = (bytes(2**20) for _ in range(LIMIT_FILE_BYTES // 2**20 + 2))
    answer = master.ask("PUT", f"/v1/packages/{'0' * 64}", content=pieces)
    assert (answer.status_code, answer.json()["code"]) == (413, "package-size")
    assert not master.packages.folder.exists()


def test_a_package_that_the_next_master_lacks_is_brought_to_it(bench: Bench) -> None:
    from scribengin.client.models import Submit

    first, second = bench.master(), bench.master()
    package = bench.package()
    bench.client(first).upload(package.id, package.data)
    client = bench.client(first, second)
    first.registry.cut()
    assert client.apply("numbers", Submit(package.id, "flow.yaml", "/base"), package.data).version == 1
    assert second.packages.read(package.id).id == package.id
