"""The options `--home`, `--registry` and `--master`: the control plane that a command uses."""

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
    """The masters that a command uses: those named by --master, those of the registry named by --registry, or the master of the home
    folder."""

    home: Home
    named: tuple[str, ...]

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Open a client of the masters. Raises Refused if no master was named and none runs in the home folder, Unreachable if a registry
        was named and no master runs."""
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
        """Open a client that only reads. The registry is read directly if --registry names it, or if no master is named and the one of
        the home folder does not answer."""
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
        """The URL of the home's master; for a registry that was named, the URLs of its running masters, the leading one first."""
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
    """Add the options to a command. The command receives `masters`, a `Masters`."""
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
