"""Fetches packages that a host does not have, by their hash, from a host that has them: `GET <address>/v1/packages/<sha256>`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import httpx2

from scribengin.core.errors import Refused, ScribenginError, Unreachable
from scribengin.core.net import trusted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from scribengin.core.secret import Secret
    from scribengin.packages.store import PackageStore

_CONNECT_S = 5.0
_READ_S = 30.0
_PIECE_BYTES = 2**20
_FOUND, _MISSING = 200, 404
_BAD = ("package-hash", "package-damaged", "package-size")


class FetchedPackages:
    """A store that fetches missing packages from other hosts."""

    def __init__(
        self, store: PackageStore, addresses: Callable[[], Sequence[str]], *, token: Secret | None = None, certificates: Path | None = None
    ) -> None:
        """Create it over a store of this host.

        Args:
            store: the packages of this host.
            addresses: returns the hosts that may have a package, the most likely first; called at each fetch.
            token: sent to all of them.
            certificates: a PEM file with CA certificates.
        """
        self._store = store
        self._addresses = addresses
        self._token = token
        self._certificates = certificates

    def get(self, id: str) -> Path:
        """The folder with the verified content of the package, which is fetched and unpacked first if needed. Raises as `PackageStore.get`,
        and as `fetch`."""
        self.fetch(id)
        return self._store.get(id)

    def fetch(self, id: str) -> None:
        """Fetch the package's file, unless it is stored here.

        Raises:
            Unreachable: a host that may have it does not answer.
            Refused: no host has it (`package-missing`), or the received bytes do not match the hash (`package-hash`) and were discarded.
        """
        if self._is_here(id):
            return
        failures: list[ScribenginError] = []
        addresses = self._addresses()
        for address in addresses:
            try:
                self._fetch_from(address, id)
            except (Refused, Unreachable) as error:
                failures.append(error)
            else:
                return
        bad = [each for each in failures if each.code in _BAD]
        away = [each for each in failures if isinstance(each, Unreachable)]
        for failure in (*bad, *away):
            raise failure
        if not addresses:
            raise Unreachable(
                f"package {id} is not on this host, and no master is available to fetch it from",
                remedy="start a master with its API: scribengin server master --registry ADDRESS",
            )
        raise Refused(
            f"no master has package {id}; tried: {', '.join(addresses)}",
            remedy="submit the flow again: scribengin apply FILE",
            code="package-missing",
        )

    def _is_here(self, id: str) -> bool:
        """True if the package is stored here; False if its file is damaged, so that it is fetched again."""
        if not self._store.file(id).is_file():
            return False
        with suppress(Refused):
            self._store.read(id)
            return True
        return False

    def _fetch_from(self, address: str, id: str) -> None:
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token.reveal()}"}
        verify = trusted(self._certificates)
        timeout = httpx2.Timeout(_READ_S, connect=_CONNECT_S)
        try:
            with (
                httpx2.Client(headers=headers, verify=verify, timeout=timeout, trust_env=False) as client,
                client.stream("GET", f"{address.rstrip('/')}/v1/packages/{id}") as response,
            ):
                if response.status_code == _MISSING:
                    raise Refused(f"{address} does not have package {id}", code="package-missing")
                if response.status_code != _FOUND:
                    raise Unreachable(
                        f"{address} did not return package {id}: it answered {response.status_code} {response.reason_phrase}",
                        remedy="check its log; if it requires a token, set SCRIBENGIN_TOKEN for the node",
                    )
                self._store.put(_pieces(response), id)
        except httpx2.HTTPError as error:
            raise Unreachable(
                f"{address} did not return package {id}: {error or type(error).__name__}",
                remedy="check that the master runs, and that this host can reach it",
            ) from error


def _pieces(response: httpx2.Response) -> Iterator[bytes]:
    yield from response.iter_bytes(_PIECE_BYTES)
