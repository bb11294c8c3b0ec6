"""Zstandard as PEP 784 has it: `compression.zstd` of Python 3.14, and its backport before that."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import CompressionParameter, ZstdDecompressor, ZstdError, ZstdFile, compress, decompress
else:
    from backports.zstd import CompressionParameter, ZstdDecompressor, ZstdError, ZstdFile, compress, decompress

__all__ = ["CompressionParameter", "ZstdDecompressor", "ZstdError", "ZstdFile", "compress", "decompress"]
