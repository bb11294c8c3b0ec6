"""What a kubelet writes into a container's command line: variables, mount paths, quantities, and Spark's entrypoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.kubernetes.containers import expanded, quantity
from harness.kubernetes.spark_image import spark_entrypoint
from harness.kubernetes.volumes import MountPaths, field_of
from scribengin.core.java import spark_home


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(NAME)", "one"),
        ("a $(NAME)-$(NAME)", "a one-one"),
        ("$$(NAME)", "$(NAME)"),
        ("$(OTHER)", "$(OTHER)"),
        ("$NAME ${NAME} $", "$NAME ${NAME} $"),
    ],
)
def test_variables_of_a_command(text: str, result: str) -> None:
    assert expanded(text, {"NAME": "one"}) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("/data", "/real/1"),
        ("/data/", "/real/1/"),
        ("/data/more/x", "/real/2/x"),
        ("--dir=/data/x:/data/more", "--dir=/real/1/x:/real/2"),
        ("file:///data/x", "file:///real/1/x"),
        ("/database", "/database"),
        ("/data-old and /data.old", "/data-old and /data.old"),
        ("/srv/data", "/srv/data"),
        ("it is in /data.", "it is in /real/1."),
    ],
)
def test_mount_paths_are_those_of_the_longest_mount(text: str, result: str) -> None:
    assert MountPaths({"/data": Path("/real/1"), "/data/more/": Path("/real/2")}).translated(text) == result


def test_without_mounts_nothing_is_replaced() -> None:
    assert MountPaths({}).translated("/data") == "/data"


@pytest.mark.parametrize(("text", "number"), [("2", 2.0), ("500m", 0.5), ("1Gi", 2.0**30), ("1.5k", 1500.0), (3, 3.0)])
def test_quantities(text: str | int, number: float) -> None:
    assert quantity(text) == number


def test_a_text_that_is_no_quantity() -> None:
    with pytest.raises(ValueError, match="1 GB is not a quantity"):
        quantity("1 GB")


def test_fields_of_the_downward_api() -> None:
    pod = {"metadata": {"name": "one", "namespace": "flows", "uid": "u", "labels": {"app.kind": "worker"}}, "spec": {}}
    paths = ("metadata.name", "metadata.labels['app.kind']", "metadata.annotations['none']", "spec.nodeName", "status.podIP")
    assert [field_of(pod, path, "node-1") for path in paths] == ["one", "worker", "", "node-1", "127.0.0.1"]
    with pytest.raises(KeyError):
        field_of(pod, "spec.hostname", "node-1")


def test_the_executor_of_sparks_image() -> None:
    variables = {
        "SPARK_JAVA_OPT_10": "-Dk",
        "SPARK_JAVA_OPT_2": "-Dc=with space",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "app-exec-1",
        "SPARK_CLASSPATH": "/opt/own.jar",
    }
    java, *words = spark_entrypoint(["executor"], variables)
    assert java.endswith("/bin/java")
    assert words[:5] == ["-Dc=with space", "-Dk", "-Xms512m", "-Xmx512m", "-cp"]
    assert f"/opt/own.jar:{spark_home()}/jars/*" in words[5]
    assert words[6] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert dict(zip(words[7::2], words[8::2], strict=True)) == {
        "--driver-url": "spark://driver",
        "--executor-id": "1",
        "--cores": "2",
        "--app-id": "app",
        "--hostname": "127.0.0.1",
        "--resourceProfileId": "0",
        "--podName": "app-exec-1",
    }


def test_any_other_command_of_sparks_image() -> None:
    assert spark_entrypoint(["python", "-V"], {}) == ["python", "-V"]
    submit, *words = spark_entrypoint(["driver", "--class", "Main"], {"SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1"})
    assert submit == str(spark_home() / "bin" / "spark-submit")
    assert words == ["--conf", "spark.driver.bindAddress=127.0.0.1", "--deploy-mode", "client", "--class", "Main"]
