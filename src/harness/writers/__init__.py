"""Writers of Spark that are not Scribengin's. Where this folder is on the path, Spark finds those whose module begins with pyspark_."""

from pathlib import Path

FOLDER = Path(__file__).parent
"""for PYTHONPATH"""
