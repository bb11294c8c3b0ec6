"""Which extra brings a package that a command has not found."""

from __future__ import annotations

from importlib.util import find_spec

from scribengin.core.errors import EnvironmentFault

_BY_PACKAGE = {
    "backports": "spark",
    "fastapi": "server",
    "kazoo": "server",
    "prometheus_client": "spark",
    "py4j": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "starlette": "server",
    "uvicorn": "server",
}
"""the package's name in an import → the extra"""

_OF_ALL = {"spark": "pyspark", "server": "kazoo"}
"""the extras that `all` has → a package of each that no other brings"""

_NEED_ALL = frozenset({"server dev", "server master", "server node"})
"""commands that need every extra of `all`: they name it where all are missing, and not one after the other"""


def missing_extra(error: ModuleNotFoundError, command: str) -> EnvironmentFault | None:
    """What to tell of an import that failed.

    Args:
        error: The failed import.
        command: The command's name, such as `run`.

    Returns:
        The fault that names the extra; None for a module that no extra brings.
    """
    package = (error.name or "").partition(".")[0]
    extra = _BY_PACKAGE.get(package)
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
