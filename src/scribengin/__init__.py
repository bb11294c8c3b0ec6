"""Scribengin: reliable data flows on Spark, in Python."""

from scribengin.spec.functions import batch, frame, record, to

__all__ = ["batch", "frame", "record", "to"]
