"""What Spark's JVM says of an HDFS that is away is told in our words, and tried again."""

from __future__ import annotations

import pytest

from scribengin.core.errors import Unreachable
from scribengin.spark.failures import classify

AWAY = "Query [id = f2, runId = 57] terminated with exception: "


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "Call From vm/127.0.0.1 to localhost:25606 failed on socket exception: java.net.SocketException: Connection reset; "
            "For more details see:  http://wiki.apache.org/hadoop/SocketException",
            "hdfs://localhost:25606, which stores the Spark checkpoint, does not answer: SocketException: Connection reset",
        ),
        (
            "Call From vm/127.0.0.1 to namenode:8020 failed on connection exception: java.net.ConnectException: Connection refused",
            "hdfs://namenode:8020, which stores the Spark checkpoint, does not answer: ConnectException: Connection refused",
        ),
        (
            'End of File Exception between local host is: "vm/127.0.0.1"; destination host is: "localhost":22963; : java.io.EOFException',
            "hdfs://localhost:22963, which stores the Spark checkpoint, does not answer: End of File Exception",
        ),
        ("Cannot create file/st/offsets/.7.tmp. Name node is in safe mode.\nThe reported", "Name node is in safe mode"),
        (
            "File /st/.7.tmp could only be written to 0 of the 1 minReplication nodes. There are 0 datanode(s) running",
            "could only be written to 0 of the 1 minReplication nodes",
        ),
        ("Could not obtain block: BP-1:blk_2_3 file=/st/offsets/7 No live nodes", "Could not obtain block: BP-1:blk_2_3"),
    ],
)
def test_an_hdfs_that_is_away_is_named_and_tried_again(said: str, told: str) -> None:
    fault, fate = classify(RuntimeError(AWAY + said))
    assert isinstance(fault, Unreachable)
    assert fate == "transient"
    assert told in fault.message
    assert "Query [id" not in fault.message
    assert fault.code == "hdfs-away"
