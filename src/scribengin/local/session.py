"""The Spark session of a flow on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scribengin.local.contract import RunSettings
    from scribengin.local.prepare import Prepared


def start(prepared: Prepared, settings: RunSettings) -> SparkSession:
    """A session for the flow; its scratch files and its log lie in the tier's state folder."""
    folder = prepared.folder.path / "tmp"
    return start_session(prepared.plan.flow.name, master=settings.master, memory=settings.memory, conf=settings.spark_conf, folder=folder)
