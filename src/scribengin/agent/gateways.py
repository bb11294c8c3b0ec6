"""Which gateway is used: the lowest cost that is healthy, equal ones in the order given. A failure moves on to the next one at once; the
failed one is tried again by a single request after a time that grows with each failure, and is used again when that one succeeds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.wire.protocol import GatewayMember

FIRST_BACK_OFF_S = 0.5
MOST_BACK_OFF_S = 30.0
_TRIAL_LIMIT_S = 120.0
"""a trial whose end was never reported no longer keeps others from trying"""


@dataclass(slots=True)
class _Health:
    failures: int = 0
    again_at: float = 0.0
    trial_since: float | None = None


class GatewayChain:
    """The gateways of one lane, in the order of preference, and their health. Decides only; it makes no requests.

    Args:
        members: The gateways.
        clock: Seconds of a clock that never goes back.
        jitter: A number from 0 to 1, so that the agents of a failed gateway do not all return at once.
    """

    def __init__(
        self, members: Sequence[GatewayMember], *, clock: Callable[[], float], jitter: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._lock = Lock()
        self._health: dict[str, _Health] = {}
        self._urls: tuple[str, ...] = ()
        self.replace(members)

    def replace(self, members: Sequence[GatewayMember]) -> None:
        """Use other gateways from now on; those that stay keep their health."""
        ordered = tuple(dict.fromkeys(member.url for member in sorted(members, key=lambda member: member.cost)))
        with self._lock:
            self._urls = ordered
            self._health = {url: self._health.get(url) or _Health() for url in ordered}

    @property
    def urls(self) -> tuple[str, ...]:
        """The gateways in the order of preference."""
        return self._urls

    def choose(self) -> str | None:
        """The gateway for the next request; None if each has failed and is to be left alone for now (`wait_s`).

        The caller reports the end of the request by `succeeded`, `failed` or `busy`.
        """
        with self._lock:
            now = self._clock()
            for url in self._urls:
                health = self._health[url]
                if not health.failures and health.again_at <= now:
                    return url
                if health.again_at > now:
                    continue
                if health.trial_since is None or now - health.trial_since > _TRIAL_LIMIT_S:
                    health.trial_since = now
                    return url
            return None

    def wait_s(self) -> float:
        """Seconds until `choose` may return a gateway again."""
        with self._lock:
            now = self._clock()
            times = [health.again_at - now for health in self._health.values() if health.trial_since is None]
            return max(0.0, min(times, default=1.0))

    def succeeded(self, url: str) -> bool:
        """The gateway took a request. True if it had failed before."""
        with self._lock:
            health = self._health.get(url)
            if health is None:
                return False
            was_failed = health.failures > 0
            health.failures, health.trial_since, health.again_at = 0, None, 0.0
            return was_failed

    def failed(self, url: str, *, at_least_s: float = 0.0) -> float:
        """The gateway did not take a request: use others.

        Args:
            url: The gateway.
            at_least_s: The shortest time for which to leave it alone: what it asked for, or what the failure suggests.

        Returns:
            The seconds until it is tried again.
        """
        with self._lock:
            health = self._health.get(url)
            if health is None:
                return 0.0
            health.failures += 1
            grown = min(MOST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0 ** min(health.failures - 1, 16))
            delay: float = max(at_least_s, grown) * (0.75 + 0.5 * self._jitter())
            health.again_at, health.trial_since = self._clock() + delay, None
            return delay

    def forgive(self) -> None:
        """Try all gateways again now: what kept them from taking requests has changed."""
        with self._lock:
            for health in self._health.values():
                health.again_at, health.trial_since = 0.0, None

    def busy(self, url: str, delay_s: float) -> None:
        """The gateway works, and asked for a pause: it is not counted as failed."""
        with self._lock:
            if health := self._health.get(url):
                health.again_at, health.trial_since = self._clock() + delay_s, None
                health.failures = 0
