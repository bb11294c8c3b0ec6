"""`--home`, `--registry` and `--master`: the control plane that a command talks to."""

from __future__ import annotations

import getpass
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scribengin.cli.server_options import home_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.api.views import RegistryView
    from scribengin.client.client import Client
    from scribengin.control.home import Home

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Masters:
    """The masters that a command asks: those that were named, those of the registry that was named, or the one of the home."""

    home: Home
    named: tuple[str, ...]

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Raises Refused if none was named and the home has no running process, Unreachable if a registry was named and no master runs."""
        from scribengin.client.client import Client
        from scribengin.control.masters import certificates_of, token_of

        masters = self.named or self._master_addresses()
        if not masters:
            raise self.home.not_up()
        certificates = certificates_of(os.environ)
        with Client(masters, token=token_of(os.environ), user=getpass.getuser(), certificates=certificates) as client:
            yield client

    @contextmanager
    def reader(self) -> Iterator[Client | RegistryView]:
        """The same to look only: where no master was named and none answers, the registry itself says it."""
        from scribengin.api.views import RegistryView
        from scribengin.core.errors import Unreachable

        if self.named or (self.home.entrance is None and self.home.master()):
            with self.client() as client:
                try:
                    client.ready()
                except Unreachable:
                    if self.named:
                        raise
                else:
                    yield client
                    return
        with self.home.registry() as registry:
            yield RegistryView(registry)

    def _master_addresses(self) -> tuple[str, ...]:
        """The master of the home; of a registry that was named those that are up, the one that leads first."""
        if self.home.entrance is None:
            return (self.home.master(),) if self.home.master() else ()
        from scribengin.control.masters import addresses
        from scribengin.core.errors import Unreachable

        with self.home.registry() as registry:
            found = addresses(registry)
        if not found:
            remedy = "start one: scribengin server master --registry ADDRESS"
            raise Unreachable(f"no master is running at {self.home.entrance.address}", remedy=remedy, code="master-missing")
        return found


def _both(home: Home, master: str | None) -> Masters:
    return Masters(home, tuple(each.strip() for each in (master or "").split(",") if each.strip()))


def masters_option(command: Callable[..., C]) -> Callable[..., C]:
    """Gives a command `masters`, a Masters."""
    from functools import wraps

    @home_option
    @click.option(
        "--master",
        envvar="SCRIBENGIN_MASTER",
        metavar="URL[,URL]",
        help="Masters to use instead of that of the home folder; any of them. A token is read from SCRIBENGIN_TOKEN.",
    )
    @wraps(command)
    def with_masters(*some: Any, home: Home, master: str | None, **more: Any) -> C:
        return command(*some, masters=_both(home, master), **more)

    return with_masters
