"""Who may write what, with real logins on a real ZooKeeper: a worker its own tier's records, and nothing else."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from plane import until

from scribengin.core.errors import Refused
from scribengin.core.secret import Secret
from scribengin.registry.access import RegistryAddress, SaslLogin, Tls
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.contract import Create, Delete, Forbidden, RegistryEntry, Replace
from scribengin.registry.tree import (
    ACK,
    DESIRED,
    HOST,
    LEADER,
    LEASE,
    LEASE_TERM,
    LIMIT,
    MASTERS,
    REPORT,
    RUN,
    SPEC,
    STATUS,
    WANTED,
    WORKER_ORDER,
)

if TYPE_CHECKING:
    from pathlib import Path

    from plane import Plane

    from scribengin.embedded.zookeeper import ZooKeeper

pytestmark = pytest.mark.timeout(300)


def test_a_workers_login_writes_under_its_own_tier_and_nowhere_else(plane: Plane) -> None:
    plane.master("m1")
    plane.node("a")
    plane.apply("tweets", edge=(), core=("edge",))
    plane.comes_to("tweets", "running")
    masters = ConnectionSettings(plane.address, plane.login)
    own = masters.worker_login("tweets", "edge")
    assert own is not None
    environment = plane.worker("tweets", "edge").environ()
    assert environment["SCRIBENGIN_REGISTRY_LOGIN"] == own.secret.reveal()
    password = plane.login.secret.reveal().partition(":")[2]
    assert not any(password in value for value in environment.values()), "a worker does not have the masters' password"
    assert not any(own.secret.reveal() in word for word in plane.worker("tweets", "edge").cmdline())
    with closing(replace(masters, login=own).open()) as worker:
        theirs = [
            *(DESIRED("tweets"), STATUS("tweets"), SPEC("tweets", "1"), WANTED("tweets", "edge"), RUN("tweets", "edge")),
            *(LEASE("tweets", "core"), LEASE_TERM("tweets", "core"), REPORT("tweets", "core")),
            *(LEADER(), MASTERS("m1"), HOST("a"), WORKER_ORDER("a", "tweets.edge-1")),
        ]
        for spot in theirs:
            there = worker.read(spot.path)
            assert isinstance(there, RegistryEntry), f"{spot.path} is there, and can be read"
            with pytest.raises(Forbidden):
                worker.commit(Replace(there, there.value))
            with pytest.raises(Forbidden):
                worker.commit(Delete(spot.path))
        for path in (LIMIT("tweets").path, ACK("tweets", "core").path + "/x", "flows/tweets/tiers/core/tasks/0", "masters/m2", "upkeep/x"):
            with pytest.raises(Forbidden):
                worker.commit(Create(path, {}))
        mine = worker.read(REPORT("tweets", "edge").path)
        assert isinstance(mine, RegistryEntry)
        worker.commit(Replace(mine, mine.value), Create("flows/tweets/tiers/edge/tasks/0", {}), Create("acks/tweets/edge/x", {}))
        worker.commit(Create("logicalnodes/tweets.edge/notes", {"url": "http://127.0.0.1:1"}))
    # what it has made there is the masters' too
    plane.registry.commit(Delete("flows/tweets/tiers/edge/tasks/0"))


def test_workers_of_one_tier_enter_as_the_same_on_every_host_and_those_of_others_as_others(tmp_path: Path) -> None:
    address = RegistryAddress(("a:1",), "/x")

    def login(entrance: ConnectionSettings, tier: str) -> str:
        made = entrance.worker_login("tweets", tier)
        assert made is not None
        return made.who

    key = Secret("a-long-random-text", "file")
    sasl = ConnectionSettings(address, SaslLogin("DIGEST-MD5", Secret("masters:sesame", "file")))
    given = ConnectionSettings(address, SaslLogin("GSSAPI"), worker_key=key)
    assert login(given, "edge") == login(ConnectionSettings(address, tls=Tls(), worker_key=key), "edge")
    assert len({login(each, tier) for each in (sasl, given) for tier in ("edge", "core")}) == 4
    for lacking in (ConnectionSettings(address, SaslLogin("GSSAPI")), ConnectionSettings(address, tls=Tls(certificate=tmp_path / "c.pem"))):
        with pytest.raises(Refused, match="--worker-key-file"):
            lacking.check_workers()
    assert ConnectionSettings(address, insecure=True).worker_login("tweets", "edge") is None


def test_a_way_in_is_handed_to_workers_by_their_environment(tmp_path: Path) -> None:
    entrance = ConnectionSettings(
        RegistryAddress(("a:1", "b:2"), "/x"), SaslLogin("DIGEST-MD5", Secret("masters:sesame", "file")), Tls(ca=tmp_path / "ca.pem")
    )
    environment, secrets = entrance.of_worker("tweets", "edge")
    given = {name: value for name, value in environment.items() if value is not None}
    found = ConnectionSettings.of_environment(given | {name: secret.reveal() for name, secret in secrets.items()})
    assert (found.address, found.tls, found.insecure) == (entrance.address, entrance.tls, False)
    assert found.login == entrance.worker_login("tweets", "edge")
    assert "sesame" not in str(environment)


def test_a_registry_that_everybody_can_change_is_entered_only_where_that_is_meant(plane: Plane, zookeeper: ZooKeeper) -> None:
    plane.address = RegistryAddress((zookeeper.address,), f"{plane.address.root}open")
    plane.login_file.unlink()
    for program in ("master", "node"):
        refused = plane.says_openly(program, "--name", "x", status=2)
        assert [each["code"] for each in refused] == ["registry-open"], program
    plane.registry.close()
    plane.registry = ConnectionSettings(plane.address, insecure=True).open()
    for program in ("master", "node"):  # now it is there, and everybody's
        assert plane.says_openly(program, "--name", "x", status=2)[0]["code"] == "registry-open"
    plane.openly("master", "m1", "masters/m1")
    plane.openly("node", "a", "physicalnodes/a/up")
    until(lambda: plane.leader() == "m1", "it leads")


def test_a_login_that_others_of_the_machine_may_read_is_not_taken(plane: Plane) -> None:
    plane.login_file.chmod(0o644)
    assert plane.says("master", "--name", "x", status=2)[0]["code"] == "file-open"


def test_a_wrong_login_changes_nothing(plane: Plane) -> None:
    plane.login_file.write_text("masters:guessed")
    assert plane.says("node", "--name", "x", status=3)[0]["code"] == "registry-forbidden"
    assert plane.registry.children("physicalnodes") == ()
