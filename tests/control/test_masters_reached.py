"""Which masters others are sent to."""

from __future__ import annotations

import socket

from scribengin.control.masters import leader, masters_by_host
from scribengin.registry.memory import MemoryStore
from scribengin.registry.tree import LEADER, MASTERS

HERE, LOOPBACK, OPEN = socket.gethostname(), "http://127.0.0.1:1", "http://far.example:1"


def test_nobody_is_sent_to_the_loopback_of_another_host() -> None:
    for host, http, reached in ((HERE, LOOPBACK, True), ("far.example", LOOPBACK, False), ("far.example", OPEN, True)):
        registry = MemoryStore().client()
        for spot in (LEADER(), MASTERS("m1")):
            registry.commit(spot.create(spot.kind(id="m1", host=host, http=http), ephemeral=True))
        assert leader(registry) == (http if reached else "")
        assert masters_by_host(registry) == ({host: http} if reached else {})
