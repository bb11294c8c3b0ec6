"""Stateless SQL on Arrow batches inside the tail: which expressions are portable, and their evaluation."""
