"""Every route of the document, asked with a token that has a label of no flow: none tells anything of one, and none changes anything."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scribengin.api.serving import Listen
from scribengin.client.change_models import SetQuota
from scribengin.client.models import Submit

if TYPE_CHECKING:
    from conftest import Bench

FLOW = """\
version: 1
name: hidden
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
sinks: {kept: {from: numbers, type: files, path: out, format: json, to: disks}}
groups: {disks: {members: [{at: /near, name: near}, {at: /far, name: far}]}}
labels: {team: shop}
"""
NAMES = {
    "flow": "hidden",
    "tier": "main",
    "id_": "1",
    "worker": "hidden.main-1",
    "group": "disks",
    "member": "near",
    "path": "flows/hidden/desired",
    "peer": "berlin",
    "quota": "team=shop",
    "node": "local",
    "agent": "web1",
    "name": "ann",
    "version": "1",
    "batch": "0",
}
BODIES: dict[str, Any] = {
    "replay": {"dry_run": True},
    "repair": {"letter": "kept:0:0"},
    "purge": {"dry_run": True},
    "undo_purge": {},
    "want_flow": {"state": "paused"},
    "want_workflow": {"state": "paused"},
    "roll_back": {"version": 1},
    "set_offset": {"source": "numbers", "position": "end"},
    "rewind": {"to_batch": 0},
    "scale_flow": {"cores": 1},
    "limit": {"rows_per_s": 1},
    "change_member": {"out": True},
    "write_record": {"value": {}, "version": 1},
    "write_quota": {"cores": 1},
    "write_peer": {"masters": ["h:1"]},
    "bind": {"node": "local"},
    "set_chain": {"chain": ["g1"]},
    "make_token": {"name": "eve", "role": "admin"},
    "plan_text": {"flow": "hidden", "text": FLOW, "base": "/base"},
}
"""operation → a body that it takes; that of what submits is made in the test"""
QUERIES = {"trace": {"record": "a+1"}, "delete_record": {"version": 1}}
ELSEWHERE = {
    "live": "says nothing of flows, and asks nobody who he is",
    "ready": "says nothing of flows, and asks nobody who he is",
    "list_masters": "says nothing of flows",
    "bring_package": "a package is no flow yet: whoever may submit brings one, under the hash of its content",
    "check_text": "says nothing of flows: all it knows is in the request",
    "show_session": "says who asks",
    "open_session": "says who has sent the token",
    "close_session": "says nothing",
    "has_package": "only who knows the hash of the content learns that it is there",
    "stream_events": "has no end; tests/api/test_events_api.py looks at it",
    "all_ends": "says what time it is beside the flows; tests/api/test_peers_api.py looks at it",
    "progress": "comes from workers, with the claim of their lease, and asks for no token",
}
"""operation → why it is neither"""

OTHERS = {
    "submit_flow": ["role-lacking"],  # that the name is taken is told to who may submit: he would take it otherwise
    "show_group": ["group-unknown"],
}
"""operation → codes of its own"""


def test_a_token_with_a_label_of_no_flow_learns_of_none_and_changes_none(bench: Bench) -> None:
    root, eve = bench.tokens.add("root", "admin", {}), bench.tokens.add("ann", "admin", {"team": "none"})
    master = bench.master(listen=Listen(asks=True))
    package = bench.package(FLOW)
    client = bench.client(token=root)
    client.apply("hidden", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    client.set_quota("team=shop", SetQuota(cores=4))
    submit = {"package": package.id, "path": "flow.yaml", "base": str(bench.folder)}
    bodies = {**BODIES, "submit_flow": submit, "plan_topology": {"flows": [submit]}, "submit_topology": {"flows": [submit]}}
    before = {path: bench.person.read(path) for path in ("flows/hidden/desired", "quotas/team=shop", "flows/hidden/spec/1")}
    found: dict[str, Any] = {}
    for path, operations in master.ask("GET", "/v1/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            name = operation["operationId"]
            if name in ELSEWHERE:
                continue
            assert "requestBody" not in operation or name in bodies, f"say a body that {name} takes"
            url = re.sub(r"\{(\w+)\}", lambda match: package.id if match[1] == "id" else NAMES[match[1]], path)
            body = {"json": bodies[name]} if name in bodies else {}
            headers = {"Authorization": f"Bearer {eve}"}
            answer = master.ask(method.upper(), url, headers=headers, params=QUERIES.get(name, {}), **body)
            said = answer.json() if answer.status_code < 400 else answer.json()["code"]
            wanted = OTHERS.get(name) or (["flow-unknown"] if "{flow}" in path else ["role-lacking", []])
            if said not in wanted:
                found[f"{method} {path} ({name})"] = said
    assert found == {}
    assert before == {path: bench.person.read(path) for path in before}
