"""Environment variables that a worker does not inherit from the process that starts it."""

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
    """For `Order.environment`: removes the variables of Scribengin itself (logins, keys, folders), before those of the worker are added.
    All others stay: flows take their secrets from it, `${secret:env/NAME}`. `secrets` are names
    that the order gives as secrets of the worker.

    >>> not_its_own({"SCRIBENGIN_WORKER_KEY": "abc", "SCRIBENGIN_CACHE": "/c", "KAFKA_PASSWORD": "x"})
    {'SCRIBENGIN_WORKER_KEY': None}
    """
    return {name: None for name in environment if name.startswith(_OWN) and name not in (*_SHARED, *secrets)}
