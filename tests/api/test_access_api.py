"""Who comes in, and what he may do."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from typing import TYPE_CHECKING

import httpx2
import pytest

from scribengin.api.serving import Listen
from scribengin.api.token_file import TokenFile
from scribengin.client.change_models import SetQuota
from scribengin.client.client import Client
from scribengin.client.models import NewToken, Submit
from scribengin.control import flow_records, flow_requests
from scribengin.core.errors import EnvironmentFault, Refused, ScribenginError, StateError
from scribengin.core.secret import Secret
from scribengin.registry.contract import Replace
from scribengin.registry.records import TierSpec

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Bench

    from scribengin.client.models import RoleName


def submitted(bench: Bench, flow: str, **labels: str) -> None:
    """A flow that somebody has submitted before."""
    submission = flow_requests.Submission(flow, "0" * 64, "flow.yaml", "/base", {"main": TierSpec()})
    flow_requests.apply(bench.person, submission, state=lambda _: "/state", by="bob")
    if labels:
        there = bench.person.read(f"flows/{flow}/spec/1")
        bench.person.commit(Replace(there, {**there.value, "labels": labels}))


VERBS = {
    "look": ("viewer", lambda client: client.flow("numbers")),
    "pause": ("operator", lambda client: client.want("numbers", "paused")),
    "go back": ("editor", lambda client: client.rollback("numbers", 2)),
    "bring": ("editor", lambda client: client.upload("0" * 64, b"")),
    "quotas": ("viewer", lambda client: client.quotas()),
    "agents": ("viewer", lambda client: client.agents()),
    "drain an agent": ("operator", lambda client: client.decommission_agent("web1")),
    "quota": ("admin", lambda client: client.set_quota("team=web", SetQuota(cores=2))),
    "write": ("admin", lambda client: client.write_record("limits/numbers", {"rows_per_s": 5}, version=None)),
}
ROLES: tuple[RoleName, ...] = ("agent", "viewer", "operator", "editor", "admin")


@pytest.mark.parametrize("verb", VERBS)
def test_a_role_may_what_those_before_it_may_and_no_more(bench: Bench, verb: str) -> None:
    submitted(bench, "numbers")
    tokens = {role: bench.tokens.add(role, role, {}) for role in ROLES}
    bench.master(listen=Listen(asks=True))
    least, act = VERBS[verb]
    for role in ROLES:
        code = ""
        try:
            act(bench.client(token=tokens[role]))
        except ScribenginError as error:
            code = error.code
        assert (code == "role-lacking") is (ROLES.index(role) < ROLES.index(least)), (role, code)


def test_who_has_no_token_or_a_wrong_one_learns_nothing(bench: Bench) -> None:
    submitted(bench, "numbers")
    token = bench.tokens.add("ann", "admin", {})
    master = bench.master(listen=Listen(asks=True))
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    for headers, code in (
        ({}, "token-missing"),
        ({"Authorization": f"Bearer {wrong}"}, "token-unknown"),
        ({"Authorization": "Bearer"}, "token-unknown"),
        ({"Authorization": f"Basic {token}"}, "token-unknown"),
        ({"Authorization": f"Bearer sgt_{'0' * 12}_{token[17:]}"}, "token-unknown"),
    ):
        for path in ("/v1/flows", "/v1/flows/nope", "/v1/registry/flows", "/v1/events", f"/v1/packages/{'0' * 64}", "/v1/masters"):
            answer = master.ask("GET", path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, code), path
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert master.ask("GET", "/livez").status_code == master.ask("GET", "/readyz").status_code == 200
    with pytest.raises(Refused) as told:
        bench.client(token=wrong).flows()
    assert told.value.code == "token-unknown"


def test_a_token_that_is_removed_opens_nothing_at_once(bench: Bench) -> None:
    token = bench.tokens.add("ann", "viewer", {})
    bench.tokens.add("bob", "viewer", {})
    bench.master(listen=Listen(asks=True))
    client = bench.client(token=token)
    client.flows()
    bench.tokens.remove("ann")
    with pytest.raises(Refused) as told:
        client.flows()
    assert told.value.code == "token-unknown"


def test_a_token_with_labels_has_only_the_flows_with_all_of_them(bench: Bench) -> None:
    submitted(bench, "mine", team="web", stage="live")
    submitted(bench, "theirs", team="ads", stage="live")
    submitted(bench, "bare")
    token = bench.tokens.add("ann", "admin", {"team": "web"})
    bench.master(listen=Listen(asks=True))
    client = bench.client(token=token)
    assert [row.flow for row in client.flows()] == ["mine"]
    client.want("mine", "paused")
    for act in (lambda: client.flow("theirs"), lambda: client.want("bare", "paused"), lambda: client.versions("theirs")):
        with pytest.raises(Refused) as told:
            act()
        assert told.value.code == "flow-unknown"
        assert "theirs" not in told.value.remedy
    for team in ("web", "ads"):
        bench.client(token=bench.tokens.add(team, "admin", {})).set_quota(f"team={team}", SetQuota(cores=2))
    assert [row.quota for row in client.quotas()] == ["team=web"]
    submitted(bench, "test", team="web", stage="test")
    both = bench.client(token=bench.tokens.add("both", "viewer", {"team": "web", "stage": "live"}))
    assert [(row.quota, [each.flow for each in row.flows]) for row in both.quotas()] == [("team=web", ["mine"])]
    said = lambda: client.set_quota("team=web", SetQuota(cores=3))  # noqa: E731
    for act in (lambda: client.record("flows"), lambda: client.write_record("limits/mine", {}, version=None), said):
        with pytest.raises(Refused) as told:
            act()
        assert told.value.code == "role-lacking"


class TestTheRecords:
    def test_no_token_stands_in_them_and_what_is_kept_is_not_shown(self, bench: Bench) -> None:
        token = bench.tokens.add("ann", "viewer", {"team": "web"})
        [name] = bench.person.children("tokens")
        kept = bench.person.read(f"tokens/{name}")
        assert token[17:] not in str(kept.value)
        assert [(row.name, row.role, row.labels) for row in bench.tokens.rows()] == [("ann", "viewer", {"team": "web"})]
        bench.master()
        shown = bench.client().record(f"tokens/{name}").value
        assert shown is not None
        assert (shown["name"], "hash" in shown, "salt" in shown) == ("ann", False, False)
        with pytest.raises(Refused) as told:
            bench.client().write_record(f"tokens/{name}", {"name": "ann"}, version=0)
        assert told.value.code == "registry-kept"

    def test_a_name_is_given_once_and_again_when_it_was_removed(self, bench: Bench) -> None:
        first = bench.tokens.add("ann", "viewer", {})
        with pytest.raises(Refused, match="already"):
            bench.tokens.add("ann", "admin", {})
        with pytest.raises(Refused, match="no token"):
            bench.tokens.remove("bob")
        bench.tokens.remove("ann")
        assert bench.tokens.rows() == []
        second = bench.tokens.add("ann", "admin", {})
        assert bench.tokens.prove(first) is None
        assert bench.tokens.prove(second) is not None

    def test_one_whose_time_is_over_opens_nothing(self, bench: Bench) -> None:
        old = bench.tokens.add("ann", "viewer", {}, until="2020-01-31T12:00:00+00:00")
        new = bench.tokens.add("bob", "viewer", {}, until="2999-01-31T12:00:00+00:00")
        assert (bench.tokens.prove(old), getattr(bench.tokens.prove(new), "name", None)) == (None, "bob")
        with pytest.raises(Refused, match="is not a valid time"):
            bench.tokens.add("cid", "viewer", {}, until="tomorrow")

    def test_a_damaged_one_lets_nobody_in_and_harms_no_other(self, bench: Bench) -> None:
        token, other = bench.tokens.add("ann", "admin", {}), bench.tokens.add("bob", "admin", {})
        master = bench.master(listen=Listen(asks=True))
        there = bench.person.read(f"tokens/{token[4:16]}")
        for damage in ({"format": 1}, {**there.value, "salt": "no hex"}, {**there.value, "until": "some day"}):
            bench.person.commit(Replace(bench.person.read(there.path), damage))
            answer = master.ask("GET", "/v1/flows", headers={"Authorization": f"Bearer {token}"})
            assert (answer.status_code, answer.json()["code"]) == (401, "token-unknown"), damage
        assert bench.client(token=other).flows() == []

    def test_admins_make_and_remove_them_through_any_master_and_no_answer_is_kept(self, bench: Bench) -> None:
        root = bench.tokens.add("root", "admin", {})
        first, second = bench.master(listen=Listen(asks=True)), bench.master(listen=Listen(asks=True))
        made = bench.client(first, token=root).add_token(NewToken("ann", "operator", {"team": "web"}))
        ann = bench.client(second, token=made.token)
        assert ann.flows() == []
        with pytest.raises(Refused) as told:
            ann.tokens()
        assert told.value.code == "role-lacking"
        kept = [bench.person.read(f"requests/{name}") for name in bench.person.children("requests")]
        assert made.token not in str(kept)
        second.registry.lag()  # it is behind, and must not know her any more all the same
        bench.client(first, token=root).remove_token("ann")
        with pytest.raises(Refused) as told:
            ann.flows()
        assert told.value.code == "token-unknown"
        said = [line for line in bench.audit.read_text().splitlines() if "token" in line]
        assert [json.loads(line)["what"] for line in said if '"done"' in line] == ["make token", "remove token"]
        assert made.token not in bench.audit.read_text()

    def test_a_removal_is_repeated_under_its_key(self, bench: Bench) -> None:
        bench.tokens.add("ann", "viewer", {})
        master = bench.master()
        first, again = (master.ask("DELETE", "/v1/tokens/ann", headers={"Idempotency-Key": "k"}) for _ in range(2))
        assert (first.status_code, again.status_code, again.headers.get("Idempotency-Replayed")) == (200, 200, "true")


class TestTheFile:
    def test_no_token_stands_in_it_and_nobody_else_reads_it(self, tmp_path: Path) -> None:
        file = TokenFile(tmp_path / "tokens.json")
        token = file.add("ann", "viewer", {"team": "web"})
        text = file.path.read_text()
        assert token not in text
        assert token[17:] not in text
        assert file.path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(Refused, match="already"):
            file.add("ann", "admin", {})

    def test_its_tokens_go_over_to_the_registry_once(self, bench: Bench, tmp_path: Path) -> None:
        file = TokenFile(tmp_path / "tokens.json")
        token = file.add("ann", "viewer", {"team": "web"})
        copy = TokenFile(tmp_path / "copy.json")
        copy.path.write_bytes(file.path.read_bytes())
        assert file.move_to(bench.person) == ["ann"]
        assert (file.path.exists(), file.move_to(bench.person)) == (False, [])
        who = bench.tokens.prove(token)
        assert who is not None
        assert (who.name, who.labels) == ("ann", {"team": "web"})
        bench.tokens.remove("ann")
        assert copy.move_to(bench.person) == [], "who was removed does not come back with the copy of another master"
        assert bench.tokens.prove(token) is None

    def test_one_that_cannot_go_over_is_named(self, bench: Bench, tmp_path: Path) -> None:
        bench.tokens.add("ann", "viewer", {})
        file, skipped = TokenFile(tmp_path / "tokens.json"), list[tuple[str, str]]()
        for name in ("ann", "bob", "cleo"):
            file.add(name, "viewer", {})
        said = json.loads(file.path.read_text())
        said["tokens"][1]["id"] = "by/hand"
        file.path.write_text(json.dumps(said))
        copy = TokenFile(tmp_path / "copy.json")
        copy.path.write_bytes(file.path.read_bytes())
        assert file.move_to(bench.person, lambda *told: skipped.append(told)) == ["cleo"]
        assert [(name, word in why) for (name, why), word in zip(skipped, ("another", "by/hand"), strict=True)] == [
            ("ann", True),
            ("bob", True),
        ]
        assert copy.move_to(bench.person, lambda *told: skipped.append(told)) == []
        assert [name for name, _ in skipped] == ["ann", "bob", "ann", "bob"], "the same token of another master's copy is not another"

    def test_a_damaged_one_is_told(self, bench: Bench, tmp_path: Path) -> None:
        file = TokenFile(tmp_path / "tokens.json")
        file.path.write_text("{")
        with pytest.raises(StateError, match="not a valid file of tokens"):
            file.move_to(bench.person)
        assert file.path.exists()


class TestTheDoor:
    def test_others_are_let_near_with_tokens_and_tls_only(self, certificate: tuple[Path, Path]) -> None:
        pem, key = certificate
        with pytest.raises(Refused, match="plain text"):
            Listen("0.0.0.0").check_transport()
        far = Listen("0.0.0.0", certificate=pem, key=key)
        far.check_transport()
        with pytest.raises(Refused, match="no token"):
            far.check_tokens(there=False)
        far.check_tokens(there=True)
        Listen("0.0.0.0", insecure=True).check_transport()
        Listen("0.0.0.0", insecure=True).check_tokens(there=False)
        with pytest.raises(Refused, match="none exists"):
            Listen(asks=True).check_tokens(there=False)
        with pytest.raises(EnvironmentFault, match="TLS cannot use"):
            Listen(certificate=pem, key=pem).check_transport()
        Listen("127.0.0.1").check_tokens(there=False)

    def test_tokens_are_asked_for_elsewhere_also_where_it_is_insecure(self, bench: Bench) -> None:
        bench.tokens.add("ann", "viewer", {})
        master = bench.master(listen=Listen("0.0.0.0", insecure=True))
        scheme, host, port = master.url.replace("//", "").split(":")
        assert (scheme, host) == ("http", socket.gethostname()), "others ask this machine, not their own 0.0.0.0"
        assert httpx2.get(f"http://127.0.0.1:{port}/v1/flows", trust_env=False).json()["code"] == "token-missing"

    def test_the_first_token_closes_a_door_that_was_open_without(self, bench: Bench) -> None:
        master = bench.master(listen=Listen("0.0.0.0", insecure=True))
        url = f"http://127.0.0.1:{master.url.rpartition(':')[2]}/v1/flows"
        assert httpx2.get(url, trust_env=False).json() == []
        token = bench.tokens.add("ann", "viewer", {})
        assert httpx2.get(url, trust_env=False).json()["code"] == "token-missing"
        assert httpx2.get(url, headers={"Authorization": f"Bearer {token}"}, trust_env=False).json() == []
        bench.tokens.remove("ann")
        assert httpx2.get(url, trust_env=False).json()["code"] == "token-missing", "it opens by no removal"

    def test_tls_is_spoken(self, bench: Bench, certificate: tuple[Path, Path]) -> None:
        pem, key = certificate
        token = bench.tokens.add("ann", "viewer", {})
        master = bench.master(listen=Listen(certificate=pem, key=key, asks=True))
        assert master.url.startswith("https://127.0.0.1:")
        with Client([master.url], token=Secret(token, "a test's"), certificates=pem) as client:
            assert client.flows() == []
        with Client([master.url], token=Secret(token, "a test's")) as client, pytest.raises(ScribenginError, match="certificate"):
            client.flows()

    def test_a_web_page_from_elsewhere_cannot_use_the_loopback(self, bench: Bench) -> None:
        master = bench.master()
        port = master.url.rpartition(":")[2]
        for headers in (
            {"Origin": "http://evil.example"},
            {"Host": f"evil.example:{port}"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            answer = master.ask("GET", "/v1/flows", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "origin-foreign"), headers
        assert master.ask("GET", "/v1/flows", headers={"Origin": master.url}).status_code == 200

    def test_a_wrong_token_is_refused_on_the_loopback_too(self, bench: Bench) -> None:
        bench.master()
        with pytest.raises(Refused) as told:
            bench.client(token="wrong").flows()
        assert told.value.code == "token-unknown"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, signed by itself."""
    pem, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", pem], check=True, capture_output=True)
    assert ssl.create_default_context(cafile=str(pem)).cert_store_stats()["x509"] == 1
    return pem, key


def test_flows_that_were_submitted_as_one_go_back_only_with_somebody_who_has_them_all(bench: Bench) -> None:
    submitted(bench, "mine", team="web")
    submitted(bench, "theirs", team="ads")
    for flow in ("mine", "theirs"):
        there = bench.person.read(f"flows/{flow}/spec/1")
        bench.person.commit(Replace(there, {**there.value, "together": {"mine": 1, "theirs": 1}}))
        submission = flow_requests.Submission(flow, "1" * 64, "flow.yaml", "/base", {"main": TierSpec()})
        flow_requests.apply(bench.person, submission, state=lambda _: "/state", by="bob")
        there = bench.person.read(f"flows/{flow}/spec/2")
        bench.person.commit(Replace(there, {**there.value, "labels": {"team": "web" if flow == "mine" else "ads"}}))
    token = bench.tokens.add("ann", "admin", {"team": "web"})
    master = bench.master(listen=Listen(asks=True))
    client = bench.client(token=token)
    with pytest.raises(Refused) as told:
        client.rollback("mine", 1)
    assert told.value.code == "flow-unknown"
    assert flow_records.read_flow(bench.person, "theirs").desired.version == 2
    headers = {"Authorization": f"Bearer {token}"}
    alone = master.ask("POST", "/v1/flows/mine/rollback", json={"version": 1, "only": True}, headers=headers)
    assert alone.status_code == 200, alone.text
    assert flow_records.read_flow(bench.person, "mine").desired.version == 1


def test_a_version_is_submitted_by_who_may_see_it_before_and_after(bench: Bench) -> None:
    token = bench.tokens.add("ann", "editor", {"team": "web"})
    bench.master(listen=Listen(asks=True))
    client = bench.client(token=token)

    def submits(labels: str) -> None:
        package = bench.package(bench.flow.replace("name: numbers", f"name: numbers\nlabels: {labels}"))
        client.apply("numbers", Submit(package.id, "flow.yaml", "/base"), package.data)

    for labels in ("{}", "{team: ads}"):
        with pytest.raises(Refused) as told:
            submits(labels)
        assert told.value.code == "role-lacking"
    assert bench.person.read("flows/numbers/desired") is None
    submits("{team: web, stage: live}")
    with pytest.raises(Refused):
        submits("{stage: live}")
    there = bench.person.read("flows/numbers/spec/1")
    bench.person.commit(Replace(there, {**there.value, "labels": {"team": "ads"}}))
    with pytest.raises(Refused):
        submits("{team: web}")
