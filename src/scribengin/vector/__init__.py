"""Stateless SQL on Arrow batches in the task pipeline: which expressions are portable, and their evaluation."""
