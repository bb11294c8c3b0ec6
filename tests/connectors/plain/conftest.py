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
    # Spark looks for a writer in the session that is active, and an earlier test may have left another one
    SparkSession._get_j_spark_session_class(running._jvm).setActiveSession(running._jsparkSession)
    running.dataSource.register(pyspark_shelf.DefaultSource)
    return running
