"""The registry by REST: all of it to look at, and what people may write to write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import InputError, Refused, ScribenginError
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.tree import TREE, Writer, branch_of

if TYPE_CHECKING:
    from conftest import Bench


def test_the_tree_is_browsed(bench: Bench) -> None:
    bench.master()
    client = bench.client()
    client.write_record("limits/numbers", {"rows_per_s": 5}, version=None)
    assert "limits" in client.record().children
    seen = client.record("limits/numbers")
    assert (seen.value, seen.version, seen.writable, seen.children) == ({"format": 1, "rows_per_s": 5}, 0, True, ())


def test_a_record_of_people_is_written_and_only_in_place_of_what_was_read(bench: Bench) -> None:
    bench.master()
    client = bench.client()
    client.write_record("groups/hosts", {"members": {"a": 1}}, version=None)
    client.write_record("groups/hosts", {"members": {"a": 1, "b": 2}}, version=0)
    for version in (None, 0, 7):
        with pytest.raises(ScribenginError) as told:
            client.write_record("groups/hosts", {"members": {}}, version=version)
        assert told.value.code == "revision-stale"
    there = bench.person.read("groups/hosts")
    assert isinstance(there, RegistryEntry)
    assert there.value["members"] == {"a": 1, "b": 2}


def test_what_does_not_fit_is_refused_where_it_does_not(bench: Bench) -> None:
    bench.master()
    client = bench.client()
    wrong = (({"members": {"a": "x"}}, "/value/members"), ({"members": {}, "format": 9}, "/value/format"), ({}, "/value"))
    for value, pointer in wrong:
        with pytest.raises(InputError) as told:
            client.write_record("groups/hosts", value, version=None)
        assert told.value.problems[0].place.file == pointer
    assert bench.person.read("groups/hosts") is None


def test_what_is_not_for_people_is_refused(bench: Bench) -> None:
    bench.master()
    client = bench.client()
    for path in ("leader", "flows/numbers/status", "flows/numbers/tiers/main/lease", "requests/" + "0" * 32, "mine", "groups/hosts/deeper"):
        with pytest.raises(Refused) as told:
            client.write_record(path, {}, version=None)
        assert told.value.code == "registry-kept", path


def test_a_deleted_record_is_gone_and_what_is_wanted_goes_with_its_flow(bench: Bench) -> None:
    master = bench.master()
    client = bench.client()
    client.write_record("limits/numbers", {"rows_per_s": 5}, version=None)
    assert master.ask("DELETE", "/v1/registry/limits/numbers?version=1").json()["code"] == "revision-stale"
    assert master.ask("DELETE", "/v1/registry/limits/numbers?version=0").status_code == 200
    assert bench.person.read("limits/numbers") is None
    assert master.ask("DELETE", "/v1/registry/flows/numbers/desired?version=0").json()["code"] == "registry-kept"


def test_each_place_of_the_tree_is_known_by_its_path() -> None:
    names = {"<folder>": "0" * 16, "<quota>": "team=search", "<token>": "0" * 12, "<session>": "0" * 64}
    example = {"<node>": "numbers.main", "<run>": "numbers.main-1", "<n>": "1", "<task>": "0", "<request>": "0" * 32, **names}
    for branch in TREE:
        path = re.sub("<[a-z]+>", lambda part: example.get(part[0], "numbers"), branch.path)
        assert branch_of(path) is branch, path
    assert any(Writer.PERSON in branch.writers for branch in TREE)
