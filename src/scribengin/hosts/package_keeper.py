"""Each master keeps the packages of all versions: a package that was submitted through another master is fetched while that master still
has it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from scribengin.control.masters import certificates_of, others, token_of
from scribengin.control.registry_cache import Mirror
from scribengin.core.errors import ScribenginError
from scribengin.core.log_once import ReportedTexts
from scribengin.packages.fetch import FetchedPackages
from scribengin.registry.record_io import Stored
from scribengin.registry.tree import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from structlog.typing import FilteringBoundLogger

    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry
    from scribengin.registry.records import Spec

    Versions = Mapping[str, Mapping[int, Spec]]
    """flow → number → version"""

_AGAIN_S = 10.0
_FLOWS = "flows"


class PackageKeeper:
    """Fetches missing packages from other masters, inside the `with` block."""

    def __init__(
        self,
        registry: Registry,
        store: PackageStore,
        url: str,
        environment: Mapping[str, str],
        *,
        log: FilteringBoundLogger,
        hear: Callable[[Versions], None] = lambda _specs: None,
    ) -> None:
        """Prepare it; the block starts its thread.

        Args:
            registry: where the versions and the masters are.
            store: the packages of this host.
            url: this master's own address, from which nothing is fetched.
            environment: may have a token and certificates for the other masters.
            log: its log.
            hear: called with all versions of all flows at each check; its exceptions are logged.
        """
        self._hear = hear
        self._log = log
        self._store = store
        self._mirror = Mirror(registry, _FLOWS)
        self._packages = FetchedPackages(
            store, lambda: others(registry, url), token=token_of(environment), certificates=certificates_of(environment)
        )
        self._here: set[str] = set()
        self._said = ReportedTexts()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="packages", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._mirror.changed.set()
        self._thread.join()
        self._mirror.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._mirror.refresh()
                self._fetch_missing()
            except ScribenginError as error:
                self._say(error.message)
            except Exception:  # a bug: it is logged with its traceback; the thread continues
                self._log.exception("packages")
            self._mirror.changed.wait(_AGAIN_S)

    def _fetch_missing(self) -> None:
        specs = self._specs()
        try:
            self._hear(specs)
        except ScribenginError as error:  # packages are fetched nevertheless
            self._say(error.message)
        except Exception:
            self._log.exception("packages")
        wanted = {spec.package for there in specs.values() for spec in there.values()}
        for id_ in sorted(wanted - self._here):
            if self._ended.is_set():
                return
            try:
                self._packages.fetch(id_)
            except (ScribenginError, ValueError) as error:
                self._say(str(error))
            else:
                self._here.add(id_)

    def _specs(self) -> dict[str, dict[int, Spec]]:
        """Flow → number → version, for all existing versions."""
        flows = [flow for flow in self._mirror.children(_FLOWS) if SPEC.fits(flow, "1")]
        self._mirror.fetch([], [f"{_FLOWS}/{flow}/spec" for flow in flows])
        specs = [
            SPEC(flow, number) for flow in flows for number in self._mirror.children(f"{_FLOWS}/{flow}/spec") if SPEC.fits(flow, number)
        ]
        self._mirror.fetch([spec.path for spec in specs])
        found: dict[str, dict[int, Spec]] = {}
        for spec in specs:
            if isinstance(stored := self._mirror.stored(spec), Stored):
                _, flow, _, number = spec.path.split("/")
                found.setdefault(flow, {})[int(number)] = stored.record
        return found

    def _say(self, text: str) -> None:
        if self._said.is_new(text):
            self._log.warning("packages", message=text)
