"""What a worker does not inherit from the process that has it started."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_OWN = "SCRIBENGIN_"
_SHARED = frozenset(
    {
        "SCRIBENGIN_CACHE",
        "SCRIBENGIN_CERTIFICATES",
        "SCRIBENGIN_CLASS_ARCHIVE",
        "SCRIBENGIN_CONFIG",
        "SCRIBENGIN_FAULT",
        "SCRIBENGIN_IVY_SETTINGS",
    }
)


def not_its_own(environment: Mapping[str, str], *secrets: str) -> dict[str, str | None]:
    """For `Order.environment`: what Scribengin itself was told there (logins, keys, folders) is taken away, before what the worker gets.
    All else stays: flows take their secrets from it, `${secret:env/NAME}`. `secrets` are names
    that the order gives as secrets of the worker.

    >>> not_its_own({"SCRIBENGIN_WORKER_KEY": "abc", "SCRIBENGIN_CACHE": "/c", "KAFKA_PASSWORD": "x"})
    {'SCRIBENGIN_WORKER_KEY': None}
    """
    return {name: None for name in environment if name.startswith(_OWN) and name not in (*_SHARED, *secrets)}
