"""The generated pages of docs/: what `docs/generate.py` writes them from, beside the declarations in the code."""
