"""Figures of formats that those need too who only look at what is recorded: here no NumPy is loaded."""

from __future__ import annotations

DIGESTS = 1 << 64
"""digests of record ids are added modulo this"""
PAYLOAD_BYTES = 64 * 1024
"""How much of a damaged or overlong record a dead letter keeps."""
