"""A flow's state that does not lie with the master: a node that has it is asked, or it is told which may have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest

from scribengin.api.elsewhere import node_with_state
from scribengin.api.node_pages import Looking, NodePages
from scribengin.api.serving import Listen
from scribengin.control import admin
from scribengin.control.home import Home
from scribengin.core.errors import Refused, Unreachable
from scribengin.hosts.node import Node
from scribengin.packages.make import make_package
from scribengin.registry.entrance import Entrance
from scribengin.registry.kinds import Host, Run, TierSpec
from scribengin.registry.memory import MemoryStore
from scribengin.registry.tree import HOST, RUN

if TYPE_CHECKING:
    from pathlib import Path

    from plane import Plane

pytestmark = pytest.mark.timeout(300)
FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {odd: {from: numbers, filter: FILTER}}
sinks: {kept: {from: odd, type: files, path: out, format: json}}
"""


def test_nodes_are_asked_those_of_the_workers_first_and_who_does_not_answer_is_named(tmp_path: Path) -> None:
    registry = MemoryStore().client()
    submission = admin.Submission("tweets", "0" * 64, "flow.yaml", "/base", {"main": TierSpec()})
    admin.apply(registry, submission, state=lambda _: str(tmp_path / "state"), by="me")
    asked = []

    def has(node: str, flow: str) -> bool:
        asked.append((node, flow))
        if node == "silent":
            raise Unreachable("it is away")
        return node == "there"

    assert node_with_state(registry, "tweets", has) == "", "it never ran: it has none"
    assert asked == []
    for name in ("a", "silent", "there"):
        registry.commit(HOST(name).create(Host(host=name)))
    registry.commit(RUN("tweets", "main").create(Run(number=1, node="silent", asked_at=0.0, generation=1)))
    assert node_with_state(registry, "tweets", has) == "there"
    assert [node for node, _ in asked] == ["silent", "a", "there"]
    with pytest.raises(Refused, match=r"not on this host.*may be on silent \(it is away\)") as told:
        node_with_state(registry, "tweets", lambda node, flow: has(node, flow) and node == "a")
    assert told.value.code == "state-elsewhere"
    asked.clear()
    with pytest.raises(Refused, match=r"may be on silent \(not asked.*there \(not asked"):
        node_with_state(registry, "tweets", has, within_s=0)
    assert asked == []
    assert node_with_state(registry, "tweets", lambda _node, _flow: False) == "", "all say that they have none: there is none yet"
    (tmp_path / "state/tweets").mkdir(parents=True)
    asked.clear()
    assert (node_with_state(registry, "tweets", has), asked) == ("", []), "it lies here"


def test_a_node_looks_into_states_for_masters_and_for_nobody_else(plane: Plane) -> None:
    """No Spark: what there is to be found is that nothing was read yet."""
    entrance, folder = Entrance(plane.address, plane.login), plane.folder / "flow"
    folder.mkdir()
    home, state = Home(plane.folder / "a"), plane.folder / "states"

    def packed(filter_: str) -> str:
        (folder / "flow.yaml").write_text(FLOW.replace("FILTER", filter_))
        package = make_package(folder, {}).package
        home.packages.put([package.data], package.id)
        return package.id

    submission = admin.Submission("numbers", packed("id % 2 = 1"), "flow.yaml", str(folder), {"main": TierSpec()})
    admin.apply(plane.registry, submission, state=lambda _: str(state), by="me")

    def looking(what: str, **more: object) -> Looking:
        return Looking(what, "numbers", ("numbers",), plane.registry.sync(), str(state), **more)  # type: ignore[arg-type]

    with Node(home, "a", entrance, listen=Listen()) as node:
        pages = NodePages(plane.registry, entrance.host_key)
        assert pages.has_state("a", "numbers") is False
        (state / "numbers").mkdir(parents=True)
        assert pages.has_state("a", "numbers") is True
        with pytest.raises(Refused, match='no flow "letters"'):
            pages.has_state("a", "letters")

        assert pages.look_into("a", looking("offsets")) == []
        with pytest.raises(Refused) as told:
            pages.look_into("a", looking("rewind", arguments={"to_time": None, "to_batch": 1, "query": None}))
        assert told.value.code == "rewind-nothing", "its problems are the planner's"

        with pytest.raises(Unreachable, match="lets this master not in"):
            NodePages(plane.registry).look_into("a", looking("offsets"))
        blind = httpx2.post(f"{node.url}/states", content=b"{}", trust_env=False)
        assert (blind.status_code, blind.json()["code"]) == (403, "role-lacking")
        key = entrance.host_key("a")
        assert key is not None
        headers = {"Authorization": f"Bearer {key.reveal()}"}
        for body in (b"{", b'{"what": 1}', b" " * 300_000):
            assert httpx2.post(f"{node.url}/states", content=body, headers=headers, trust_env=False).status_code in (409, 413, 422)
