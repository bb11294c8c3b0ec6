"""Zstandard with the interface of PEP 784: `compression.zstd` of Python 3.14, or its backport in older versions."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import CompressionParameter, ZstdDecompressor, ZstdError, ZstdFile, compress, decompress
else:
    from backports.zstd import CompressionParameter, ZstdDecompressor, ZstdError, ZstdFile, compress, decompress

__all__ = ["CompressionParameter", "ZstdDecompressor", "ZstdError", "ZstdFile", "compress", "decompress"]
