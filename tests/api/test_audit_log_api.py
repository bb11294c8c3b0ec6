"""The audit log by REST: the newest lines of one master, read from the end of its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.api import audit
from scribengin.api.audit import AuditLog, lines_from_end
from scribengin.api.serving import Listen
from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Bench


def test_the_newest_lines_come_first_and_are_filtered(bench: Bench) -> None:
    bench.master()
    client = bench.client()
    for flow in ("orders", "bills", "orders"):
        client.write_record(f"limits/{flow}", {"rows_per_s": 5}, version=client_version(bench, flow))
    with pytest.raises(ScribenginError):
        client.want("nope", "paused")
    said = client.audit_log()
    assert said.complete
    assert [(line.who, line.what, line.target, line.outcome) for line in said.entries] == [
        ("ann", "paused", "nope", "flow-unknown"),
        ("ann", "write record", "limits/orders", "done"),
        ("ann", "write record", "limits/bills", "done"),
        ("ann", "write record", "limits/orders", "done"),
    ]
    assert all(line.address == "127.0.0.1" and line.at for line in said.entries)
    assert [line.target for line in client.audit_log(limit=1).entries] == ["nope"]
    assert not client.audit_log(limit=1).complete
    assert len(client.audit_log(flow="limits/orders").entries) == 2
    assert client.audit_log(who="bob").entries == ()


def client_version(bench: Bench, flow: str) -> int | None:
    there = bench.person.read(f"limits/{flow}")
    return None if there is None else there.version


def test_it_is_for_admins_who_see_all_flows(bench: Bench) -> None:
    tokens = {name: bench.tokens.add(name, role, labels) for name, role, labels in USERS}
    bench.master(listen=Listen(asks=True))
    assert bench.client(token=tokens["root"]).audit_log().entries == ()
    for name in ("eve", "web"):
        with pytest.raises(ScribenginError) as told:
            bench.client(token=tokens[name]).audit_log()
        assert told.value.code == "role-lacking"


USERS: tuple[tuple[str, str, dict[str, str]], ...] = (("root", "admin", {}), ("eve", "editor", {}), ("web", "admin", {"team": "web"}))


def test_a_file_is_read_from_its_end_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    lines = [str(number) * number for number in range(1, 10)]
    for block in (1, 2, 3, 7, 9, 10, 50, 1000):
        monkeypatch.setattr(audit, "_BLOCK_BYTES", block)
        for end in ("", "\n"):
            path.write_text("\n".join(lines) + end)
            found = [line.decode() for line in lines_from_end(path) if line]
            assert found == [line for line in reversed(lines) if line in found]
            assert {line for line in lines if len(line) < block} <= set(found), (block, end)
    path.write_text("")
    assert list(lines_from_end(path)) == [b""]


def test_damaged_and_endless_lines_are_left_out(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    assert log.read(10).entries == ()
    log.write("ann", "a", "stop", "orders", "done")
    with (tmp_path / "audit.log").open("ab") as file:
        file.write(b"x" * 1_000_000 + b"\n\xff{}\n{}\n")
    log.write("bob", "a", "stop", "bills", "done")
    with (tmp_path / "audit.log").open("ab") as file:
        file.write(b'{"at": "2026')
    assert [line.who for line in log.read(10).entries] == ["bob", "ann"]
    assert AuditLog(None).read(10).complete
