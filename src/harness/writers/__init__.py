"""Spark writers that do not belong to Scribengin. If this folder is in the Python path, Spark finds those whose module begins with
pyspark_."""

from pathlib import Path

FOLDER = Path(__file__).parent
"""the folder, for PYTHONPATH"""
