"""Spark in a real Kubernetes: its driver is a pod of a service account, and asks the API server for executors, which are pods too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conftest import SPARK_IMAGE, give_rights

from scribengin.core.java import FIRST_COMPILER_ONLY

if TYPE_CHECKING:
    from conftest import Bench

DRIVER = """
import sys
from pyspark.sql import SparkSession
server, namespace, pod, image, java = sys.argv[1:]
settings = {
    "spark.kubernetes.namespace": namespace,
    "spark.kubernetes.driver.pod.name": pod,
    "spark.kubernetes.container.image": image,
    "spark.kubernetes.authenticate.executor.serviceAccountName": "spark",
    "spark.kubernetes.executor.request.cores": "0.5",
    "spark.kubernetes.executor.deleteOnTermination": "false",
    "spark.executor.instances": "1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": java,
    "spark.driver.extraJavaOptions": java,
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
builder = SparkSession.builder.master(f"k8s://{server}").appName("counts")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
print("count", spark.range(1000).count())
print("by python", spark.sparkContext.parallelize(range(10), 2).map(lambda each: each * each).sum(), flush=True)
spark.stop()
"""
RIGHTS = [
    {
        "apiGroups": [""],
        "resources": ["pods", "configmaps", "persistentvolumeclaims", "services"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"],
    }
]
"""those that Spark's documentation asks for"""


@pytest.mark.timeout(1000)
def test_a_driver_gets_an_executor_that_counts(bench: Bench) -> None:
    give_rights(bench, "spark", RIGHTS)
    quick = " ".join(("-XX:+UseSerialGC", *FIRST_COMPILER_ONLY))
    command = ["python", "-c", DRIVER, bench.cluster.server, bench.namespace, "driver", SPARK_IMAGE, quick]
    bench.pod("driver", command, more={"serviceAccountName": "spark"})
    pod = bench.wait_for("driver", lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"), 800.0)
    log = bench.log("driver")
    assert pod["status"]["phase"] == "Succeeded", log
    assert "count 1000\n" in log
    assert "by python 285\n" in log
    executors = bench.cluster.api.get(f"{bench.path}/pods", labelSelector="spark-role=executor")["items"]
    (executor,) = executors
    assert executor["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert executor["spec"]["nodeName"] == "node-1"
