"""Count what has come to the end of the pipeline: files in HDFS, and a table."""

import os

import psycopg
from hdfs_native import Client


def main() -> None:
    hdfs = Client(os.environ["NAMENODE"])
    files = [each.path for each in hdfs.list_status("/payments", recursive=True) if each.path.endswith(".jsonl") and "/_" not in each.path]
    lines = [line for file in files for line in hdfs.read(file).read().splitlines()]
    print(f"{len(lines):,} payments, {len(set(lines)):,} different ones")
    with psycopg.connect(os.environ["POSTGRES"]) as connection:
        for page, visits in connection.execute("SELECT page, visits FROM visits ORDER BY page"):
            print(f"{page:<8}{visits:>6,} visits")


if __name__ == "__main__":
    main()
