"""A foreign writer of Spark, for all tests of this folder, and how flows are run as processes."""

import sys

import pytest
from pyspark.sql import SparkSession

from harness import writers

sys.path.insert(0, str(writers.FOLDER))  # where Spark's Python processes find pyspark_shelf too


@pytest.fixture
def shelf(spark: SparkSession) -> SparkSession:
    """A session that knows the writer `shelf`."""
    import pyspark_shelf
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(pyspark_shelf)  # the session began before this folder was on the path
    running = SparkSession.builder.getOrCreate()  # the one that a sink writes in; writers are registered in each session by itself
    running.dataSource.register(pyspark_shelf.DefaultSource)
    return running
