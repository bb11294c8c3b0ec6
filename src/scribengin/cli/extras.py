"""Finds the extra that installs a missing package."""

from __future__ import annotations

from importlib.util import find_spec

from scribengin.core.errors import EnvironmentFault

_BY_PACKAGE = {
    "backports": "spark",
    "fastapi": "server",
    "google_crc32c": "edge",
    "kazoo": "server",
    "lightkube": "kubernetes",
    "lz4": "edge",
    "numpy": "spark",
    "prometheus_client": "spark",
    "py4j": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "starlette": "server",
    "uvicorn": "server",
}
"""name of the package in an import → the extra that installs it"""

_BY_COMMAND = {
    "agent": {"backports": "agent", "google_crc32c": "agent", "lz4": "lz4"},
    "gateway": dict.fromkeys(("backports", "fastapi", "google_crc32c", "kazoo", "lz4", "numpy", "starlette", "uvicorn"), "gateway"),
}
"""last word of a command → package → the extra to install for that command, if it is another one"""

_OF_ALL = {"spark": "pyspark", "server": "kazoo"}
"""extra that `all` includes → a package that only this extra installs"""

_NEED_ALL = frozenset({"server dev", "server master", "server node"})
"""commands that need every extra of `all`. If all of them are missing, the message names `all` instead of one extra after the other."""


def missing_extra(error: ModuleNotFoundError, command: str) -> EnvironmentFault | None:
    """Returns the error to report for an import that failed, with the extra to install; None if no extra installs the module.

    Args:
        error: the failed import
        command: the command's name, such as `run`
    """
    package = (error.name or "").partition(".")[0]
    of_command = _BY_COMMAND.get(command.rpartition(" ")[2], {})
    extra = of_command.get(package) or _BY_PACKAGE.get(package)
    if extra is None:
        return None
    if command in _NEED_ALL and not any(map(_is_there, _OF_ALL.values())):
        extra = "all"
    shown = "backports.zstd" if package == "backports" else package.replace("_", "-")
    return EnvironmentFault(
        f"scribengin {command} needs the package {shown}, which is not installed",
        remedy=f"install it: pip install 'scribengin[{extra}]'",
        code="extra-missing",
    )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
