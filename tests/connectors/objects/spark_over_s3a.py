"""A program that reads objects with a Spark of its own, whose jars hold Hadoop's S3A client: a session that runs takes no more jars."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from scribengin.embedded.jars import fetch
from scribengin.reading import committed


def main() -> None:
    """Standard input: `url`, `endpoint`, `config`, and `listed`, whether to go by a listing. Prints the rows, by id."""
    asked = json.load(sys.stdin)
    found = committed(asked["url"], endpoint=asked["endpoint"], config=asked["config"])
    jars = [str(jar) for name in ("hadoop-aws", "aws-s3") for jar in fetch(name)]
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", ",".join(jars))
    for name, value in found.spark_settings().items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        frame = session.read.parquet(asked["url"].replace("s3://", "s3a://")) if asked["listed"] else found.spark(session)
        print(json.dumps([row.asDict() for row in frame.select("id", "country", "amount").orderBy("id").collect()]))
    finally:
        session.stop()


if __name__ == "__main__":
    main()
