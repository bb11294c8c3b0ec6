"""Constants of formats in a module without NumPy, for code that only reads stored records."""

from __future__ import annotations

DIGESTS = 1 << 64
"""digests of record ids are added modulo this"""
PAYLOAD_BYTES = 64 * 1024
"""The maximum number of bytes of a damaged or overlong record that a dead letter keeps."""
