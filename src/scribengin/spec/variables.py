"""Fills in `${env:NAME}`, `${env:NAME:-default}`, `${secret:env/NAME}`, `${secret:file/PATH}` and `$${`, after parsing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_PART = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_ENV = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.DOTALL)
_SECRET = re.compile(r"secret:(env|file)/(.+)\Z")


@dataclass(frozen=True, slots=True)
class ReferenceFault:
    """A reference that could not be filled in; `offset` counts in the text as written."""

    code: str
    offset: int
    message: str
    remedy: str
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Filled:
    """A text with its references filled in. `secret` is True if one of them is a secret: then all of `text` is secret."""

    text: str = field(repr=False)
    secret: bool
    faults: tuple[ReferenceFault, ...]
    spans: tuple[tuple[int, int, int, int], ...]
    """(start and end in `text`, start and end as written) of each reference"""

    def written(self, offset: int) -> int:
        """The offset in the text as written of a character of `text`; inside a reference, the reference's start."""
        shift = 0
        for start, end, from_, to in self.spans:
            if offset < start:
                break
            if offset < end:
                return from_
            shift = to - end
        return offset + shift


def fill(text: str, environment: Mapping[str, str], folder: Path) -> Filled:
    """Fill in every reference; one that cannot be filled in stays unchanged and gets a fault."""
    parts: list[str] = []
    faults: list[ReferenceFault] = []
    spans: list[tuple[int, int, int, int]] = []
    secret = False
    at = length = 0
    for found in _PART.finditer(text):
        value, fault, is_secret = _value(found, environment, folder)
        if fault:
            faults.append(fault)
        secret |= is_secret
        parts += (text[at : found.start()], value)
        length += found.start() - at
        spans.append((length, length + len(value), found.start(), found.end()))
        length += len(value)
        at = found.end()
    parts.append(text[at:])
    return Filled("".join(parts), secret, tuple(faults), tuple(spans))


def _value(found: re.Match[str], environment: Mapping[str, str], folder: Path) -> tuple[str, ReferenceFault | None, bool]:
    """(the value, or the reference itself; the fault, if it could not be filled in; True if it is a secret)."""
    whole, inner, offset = found.group(), found.group(1), found.start()
    if inner is None:
        return "${", None, False
    if not whole.endswith("}"):
        return (
            whole,
            ReferenceFault("fill-syntax", offset, f'"{whole}" is never closed', "close it with }, or write $${ for a plain ${"),
            False,
        )
    env = _ENV.match(inner)
    if env:
        name, default = env.groups()
        if name in environment:
            return environment[name], None, False
        if default is not None:
            return default, None, False
        remedy = f"set it, or give a default: ${{env:{name}:-…}}"
        return whole, ReferenceFault("env-missing", offset, f"the environment variable {name} is not set", remedy, inner), False
    secret = _SECRET.match(inner)
    if secret:
        value, fault = _secret(secret.group(1), secret.group(2), environment, folder, offset, inner)
        return value, fault, True
    remedy = "write ${env:NAME}, ${env:NAME:-default}, ${secret:env/NAME}, ${secret:file/PATH}, or $${ for a plain ${"
    return whole, ReferenceFault("fill-syntax", offset, f'"{whole}" is not a valid reference', remedy), False


def _secret(
    kind: str, name: str, environment: Mapping[str, str], folder: Path, offset: int, reference: str
) -> tuple[str, ReferenceFault | None]:
    if kind == "env":
        if name in environment:
            return environment[name], None
        message = f"the environment variable {name} of a secret is not set"
        return "", ReferenceFault("secret-missing", offset, message, "set it on the machine where the flow runs", reference)
    try:
        return (folder / name).read_text(encoding="utf-8").rstrip("\r\n"), None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not valid UTF-8 text"
        message = f"the secret file {name} cannot be read: {why}"
        return "", ReferenceFault("secret-missing", offset, message, "check the path: it is relative to the flow file's folder", reference)
