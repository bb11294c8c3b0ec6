"""Generators of pages in docs/: `docs/generate.py` writes them from declarations in the code."""
