"""Which extra brings a package that a command has not found."""

from __future__ import annotations

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
    shown = "backports.zstd" if package == "backports" else package.replace("_", "-")
    return EnvironmentFault(
        f"scribengin {command} needs the package {shown}, which is not installed",
        remedy=f"install it: pip install 'scribengin[{extra}]'",
        code="extra-missing",
    )
