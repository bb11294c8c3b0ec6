"""A process that takes a right and then does what it is told, a word a line: `write`, `write-without-term`, `held`; answers likewise."""

from __future__ import annotations

import os
import sys
import time

from scribengin.core.errors import FencedError, Unreachable
from scribengin.core.secret import Secret
from scribengin.registry.access import DigestLogin, RegistryAddress
from scribengin.registry.contract import Create, Registry, Term
from scribengin.registry.lease import RegistryLease
from scribengin.registry.zookeeper import open_zookeeper


def main(address: str, right: str, session_s: str) -> None:
    login = DigestLogin(Secret(os.environ["REGISTRY_LOGIN"], "${secret:env/REGISTRY_LOGIN}"))
    registry = open_zookeeper(RegistryAddress.parse(address), login=login, session_s=float(session_s), wait_s=60)
    lease = RegistryLease(registry, right, {"pid": os.getpid()})
    lease.acquire(wait_s=60)
    tell(str(lease.term.number))
    for line in sys.stdin:
        match line.strip():
            case "held":
                tell(str(lease.held()))
            case "write":
                tell(write(registry, lease.term))
            case "write-without-term":
                tell(write(registry, None))


def write(registry: Registry, term: Term | None) -> str:
    """Until it is settled whether it may."""
    end = time.monotonic() + 60
    while True:
        try:
            registry.commit(Create("written", {"pid": os.getpid()}), term=term)
        except FencedError:
            return "fenced"
        except Unreachable:
            if time.monotonic() > end:
                return "unreachable"
        else:
            return "written"


def tell(word: str) -> None:
    print(word, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
