"""`delivery: at_least_once`: Spark's own sink writes the same messages; nothing is lost, and a secret is shown nowhere."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.kafka.options import SINK
from scribengin.connectors.kafka.sink import KafkaSink
from scribengin.connectors.kafka.spark_sink import SparkKafkaSink, java_settings
from scribengin.core.errors import Refused, SinkError, Unreachable
from scribengin.core.secret import Secret
from scribengin.embedded.server import free_ports
from scribengin.spark.session import _REDACTED, redactions
from tests.connectors.kafka.guarded import PASSWORD
from tests.connectors.kafka.processes import SCRIBENGIN, said, scribengin, started, within
from tests.connectors.kafka.test_sink import read
from tests.embedded.test_jars import _NOWHERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.connectors.kafka.conftest import Topics
    from tests.connectors.kafka.guarded import Guarded

FLOW = """
version: 1
name: copied
sources:
  numbers: {type: kafka, bootstrap: "BOOTSTRAP", topics: [TOPIC_IN], format: json, schema: id BIGINT, max_rows: 400}
steps:
  named: {from: numbers, python: "steps:named", schema: "id BIGINT, user STRING"}
  few: {from: named, filter: id % 2 = 0}
  last: {from: few, python: "steps:last"}
sinks:
  out:
    from: last
    type: kafka
    bootstrap: "BOOTSTRAP"
    topic: TOPIC_OUT
    key: user
    headers: {who: user}
    partition: CASE WHEN id = 30 THEN 9 ELSE id % 4 END
    format: json
    columns: [id]
    delivery: at_least_once
"""
STEPS = """
def named(row):
    if row["id"] == 10:
        raise ValueError("ten")
    return {"id": row["id"], "user": f"u{row['id']}"}


def last(row):
    return row["id"] != 20
"""
KEPT = sorted(set(range(0, 1000, 2)) - {10, 20, 30})


@pytest.mark.long
def test_a_killed_flow_loses_nothing_and_what_it_doubles_has_the_same_id(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make(2), topics.make(4)
    topics.write(source, range(500), 0)
    topics.write(source, range(500, 1000), 1)
    (tmp_path / "flow.yaml").write_text(
        FLOW.replace("BOOTSTRAP", topics.bootstrap).replace("TOPIC_IN", source).replace("TOPIC_OUT", target)
    )
    (tmp_path / "steps.py").write_text(STEPS)

    planned = scribengin(tmp_path, "plan", "flow.yaml")
    assert "Python worker: makes the messages in one pass; Spark's own sink writes them" in planned.stdout
    assert "numbers -> out: at least once; Spark's own sink writes" in planned.stdout

    killed = scribengin(tmp_path, "run", "flow.yaml", "--once", SCRIBENGIN_FAULT="decide.before@2:kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ran = scribengin(tmp_path, "run", "flow.yaml", "--once")
    assert ran.returncode == 0, ran.stderr
    assert re.search(rf"rows to .+, at least once \({len(KEPT)} with earlier runs\)$", ran.stdout, re.MULTILINE), ran.stdout
    assert "The ledger balances" in ran.stdout

    messages = read(topics, target)
    copies = Counter(json.loads(message.value())["id"] for message in messages)
    assert sorted(copies) == KEPT
    doubled = [id_ for id_, count in copies.items() if count > 1]
    assert doubled, "the second Batch was written, and killed before it was decided"
    assert max(copies.values()) == 2
    ids = Counter(dict(message.headers())["scribengin"] for message in messages)
    assert len(ids) == len(KEPT)
    for message in messages:
        number = json.loads(message.value())["id"]
        assert json.loads(message.value()) == {"id": number}
        assert message.key() == f"u{number}".encode()
        assert dict(message.headers())["who"] == f"u{number}".encode()
        assert message.partition() == number % 4

    audited = scribengin(tmp_path, "audit", "flow.yaml", "--json")
    assert audited.returncode == 0, audited.stdout
    (query,) = json.loads(audited.stdout)["result"]["queries"]
    assert query["nodes"]["out"] == {"in": len(KEPT) + 1, "out": len(KEPT), "filtered": 0, "dead": 1, "late": 0, "made": 0}
    assert query["dead"] == {"decided": 2, "found": 2, "expired": 0, "purged": 0}
    letters = scribengin(tmp_path, "dead-letter", "list", "flow.yaml").stdout
    assert "no-partition" in letters
    assert "as decided" in scribengin(tmp_path, "audit", "flow.yaml").stdout


STATEFUL = """
version: 1
name: counted
defaults: {delivery: at_least_once}
sources:
  numbers: {type: sequence, rows: 1000, max_rows: 400, watermark: ts 1s}
  more: {type: sequence, rows: 300}
steps:
  odd: {from: numbers, filter: id % 2 = 1}
  no7: {from: odd, python: "steps:no7"}
  seen: {from: numbers, aggregate: {window: {time: ts, size: 100s}, columns: {n: count(*)}}}
sinks:
  windows: {from: seen, type: kafka, bootstrap: "BOOTSTRAP", topic: WINDOWS, format: json}
  all: {from: [no7, more], type: kafka, bootstrap: "BOOTSTRAP", topic: ALL, format: json}
"""


@pytest.mark.long
def test_state_and_several_inputs_are_written_too_and_survive_a_kill(topics: Topics, tmp_path: Path) -> None:
    windows, everything = topics.make(2), topics.make(2)
    text = STATEFUL.replace("BOOTSTRAP", topics.bootstrap).replace("WINDOWS", windows).replace("ALL", everything)
    (tmp_path / "flow.yaml").write_text(text)
    (tmp_path / "steps.py").write_text('def no7(row):\n    return row["id"] != 7\n')
    killed = scribengin(tmp_path, "run", "flow.yaml", "--once", SCRIBENGIN_FAULT="stage.after@4:kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ran = scribengin(tmp_path, "run", "flow.yaml", "--once")
    assert ran.returncode == 0, ran.stderr
    assert "The ledger balances" in ran.stdout

    found = {row["window_start"]: row["n"] for row in (json.loads(message.value()) for message in read(topics, windows))}
    assert list(found.values()) == [100] * 9, "the tenth window is open"
    ids = Counter(json.loads(message.value())["id"] for message in read(topics, everything))
    assert sorted(ids) == sorted({*range(300), *range(1, 1000, 2)})
    assert all(count >= 1 + (id_ < 300 and id_ % 2 == 1 and id_ != 7) for id_, count in ids.items())
    audited = scribengin(tmp_path, "audit", "flow.yaml", "--json")
    assert audited.returncode == 0, audited.stdout
    nodes = {query["name"]: query["nodes"] for query in json.loads(audited.stdout)["result"]["queries"]}
    assert (nodes["windows"]["windows"]["out"], nodes["all"]["all"]["out"]) == (9, 799)


def test_without_the_jars_a_run_says_which_before_spark_starts_and_a_check_needs_none(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(STATEFUL.replace("BOOTSTRAP", "127.0.0.1:1").replace("WINDOWS", "w").replace("ALL", "a"))
    (tmp_path / "steps.py").write_text('def no7(row):\n    return row["id"] != 7\n')
    away = {"SCRIBENGIN_CACHE": str(tmp_path / "cache"), "JAVA_TOOL_OPTIONS": _NOWHERE}
    assert scribengin(tmp_path, "validate", "flow.yaml", **away).returncode == 0
    ran = scribengin(tmp_path, "run", "flow.yaml", "--once", **away)
    assert ran.returncode == 3
    assert "spark-sql-kafka-0-10_2.13-4.2.0.jar" in ran.stderr
    assert "scribengin dev-jars fetch spark-kafka" in ran.stderr
    assert not (tmp_path / ".scribengin/counted/main/tmp/spark.log").exists()


# --- secrets ---

INNER = "MIIEvQ-never-to-be-seen"
KEY = f"-----BEGIN PRIVATE KEY-----\n{INNER}\n-----END PRIVATE KEY-----\n"
"""handed on to the client, which needs none here: Spark itself would show it, for its name and value say nothing of a secret"""
LOG4J = """rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n
logger.kafka.name = org.apache.spark.sql.kafka010
logger.kafka.level = debug
"""


@pytest.fixture
def locked(guarded: Guarded) -> Iterator[str]:
    """The address at which a broker asks for a login, and lets "writer" make the topic locked-out, and write to it."""
    rights = (AclOperation.CREATE, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    guarded.grant(ResourceType.TOPIC, "locked-out", *rights)
    yield guarded.users
    guarded.withdraw(ResourceType.ANY, None)


def pages(port: int) -> Iterator[tuple[str, str]]:
    """(address, text) of everything that Spark's page shows of SQL, jobs, stages and settings."""
    root = f"http://127.0.0.1:{port}"
    (application,) = json.loads(fetched(f"{root}/api/v1/applications"))
    api = f"{root}/api/v1/applications/{application['id']}"
    executions = json.loads(fetched(f"{api}/sql?details=true&planDescription=true&length=1000"))
    yield f"{api}/sql", json.dumps(executions)
    addresses = [f"{root}/SQL/execution/?id={each['id']}" for each in executions]
    addresses += [f"{api}/{name}" for name in ("jobs", "stages", "environment", "executors")]
    addresses += [f"{root}/{name}/" for name in ("jobs", "stages", "environment", "SQL", "StreamingQuery")]
    for address in addresses:
        yield address, fetched(address)


def fetched(address: str) -> str:
    with closing(urllib.request.urlopen(address, timeout=60)) as answer:
        return str(answer.read().decode())


def written(port: int) -> bool:
    with suppress(OSError, ValueError):
        text = next(text for address, text in pages(port) if address.endswith("/sql"))
        return "SaveIntoDataSourceCommand" in text
    return False


def command_lines() -> str:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(lines)


@pytest.mark.long
def test_a_secret_stands_in_no_plan_log_page_or_command_line(locked: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "log4j2.properties").write_text(LOG4J)
    (tmp_path / "events").mkdir()
    (page_port,) = free_ports(1)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "writer", "sasl.password": PASSWORD}
    flow = {
        "version": 1,
        "name": "locked",
        "sources": {"numbers": {"type": "sequence", "rate": 50}},
        "sinks": {
            "out": {
                "from": "numbers",
                "type": "kafka",
                "bootstrap": locked,
                "config": {**login, "sasl.password": "${secret:file/password}", "ssl.key.pem": "${secret:file/key}"},
                "topic": "locked-out",
                "missing_topic": "make",
                "format": "json",
                "delivery": "at_least_once",
            }
        },
    }
    (tmp_path / "flow.yaml").write_text(json.dumps(flow))
    conf = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(page_port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{tmp_path}/events",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{tmp_path}/log4j2.properties",
    }
    planned = scribengin(tmp_path, "plan", "flow.yaml")
    assert planned.returncode == 0, planned.stderr
    shown = {"plan": planned.stdout + planned.stderr}
    arguments = [f"--spark-conf={name}={value}" for name, value in conf.items()]
    with started(tmp_path, *SCRIBENGIN, "run", "flow.yaml", *arguments) as running:
        within(300, lambda: written(page_port) or running.poll() is not None)
        assert running.poll() is None, said(tmp_path)
        shown |= dict(pages(page_port))
        shown["command lines"] = command_lines()
        running.send_signal(signal.SIGINT)
        assert running.wait(200) == 0, said(tmp_path)
    state = [path for path in (tmp_path / ".scribengin").rglob("*") if path.is_file() and path.suffix != ".jar"]
    for path in [*state, *(tmp_path / "events").rglob("*"), tmp_path / "said.txt"]:
        if path.is_file():
            shown[str(path)] = path.read_text(errors="replace")
    log = next(text for name, text in shown.items() if name.endswith("spark.log"))
    assert "kafka" in log, "the log was asked to tell all, and tells nothing of the sink"
    assert any("SaveIntoDataSourceCommand" in text for name, text in shown.items() if "/events/" in name)
    assert any("kafka.sasl.jaas.config" in text for text in shown.values())
    assert [name for name, text in shown.items() if PASSWORD in text or INNER in text] == []
    assert [name for name, text in shown.items() if re.search(r"username=\\*\"writer", text)] == []


def test_spark_redacts_by_name_whatever_the_value_and_keeps_what_a_person_asked_for() -> None:
    found = redactions(["kafka.ssl.keystore.key", "kafka.client.id"], dict.fromkeys(_REDACTED, "mine"))
    assert found.keys() == {"spark.redaction.regex", "spark.sql.redaction.options.regex"}
    for pattern in found.values():
        for name in ("kafka.ssl.keystore.key", "ssl.keystore.key", "Kafka.SSL.keystore.key", "client.id"):
            assert re.search(pattern, name)
        assert not re.search(pattern, "spark.ssl.keystore.keys")
        assert re.search(pattern, "is mine")
    assert "password" in redactions(["a"], {})["spark.redaction.regex"]


# --- settings ---


def java(**config: Any) -> dict[str, str]:
    options = SINK.filled(
        {"bootstrap": "b:9092", "topic": "t", "format": "json", "config": {k.replace("_", "."): v for k, v in config.items()}}
    )
    return java_settings("out", options)


def test_a_login_becomes_what_the_java_client_reads_back() -> None:
    password = Secret('q"uo\\te', "${secret:env/P}")
    found = java(security_protocol="sasl_ssl", sasl_mechanisms="SCRAM-SHA-512", sasl_username="me", sasl_password=password)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert found["sasl.jaas.config"] == f'{module} required password="q\\"uo\\\\te" username="me";'
    assert (found["security.protocol"], found["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert not {"sasl.username", "sasl.password"} & found.keys()


def test_certificates_travel_as_text(tmp_path: Path) -> None:
    for name in ("CERTIFICATE", "PRIVATE KEY"):
        (tmp_path / name).write_text(f"-----BEGIN {name}-----\nxyz\n-----END {name}-----\n")
    found = java(
        security_protocol="SSL",
        ssl_ca_location=str(tmp_path / "CERTIFICATE"),
        ssl_certificate_location=str(tmp_path / "CERTIFICATE"),
        ssl_key_location=str(tmp_path / "PRIVATE KEY"),
        ssl_endpoint_identification_algorithm="none",
    )
    assert found["ssl.truststore.certificates"] == found["ssl.keystore.certificate.chain"] == (tmp_path / "CERTIFICATE").read_text()
    assert found["ssl.keystore.key"] == (tmp_path / "PRIVATE KEY").read_text()
    assert (found["ssl.truststore.type"], found["ssl.keystore.type"]) == ("PEM", "PEM")
    assert found["ssl.endpoint.identification.algorithm"] == ""


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"queue_buffering_max_ms": "5"}, 'config has "queue.buffering.max.ms", which the Java client does not know'),
        ({"acks": "0"}, 'config has "acks"'),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "config has sasl.mechanism OAUTHBEARER"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "me"}, "no sasl.password"),
        ({"client_id": Secret("hunter2", "x")}, "config has client.id as a secret"),
        ({"ssl_key_location": Secret("/hunter2", "x")}, "whose file *** cannot be read as PEM"),
        ({"ssl_ca_location": "/there/is/none"}, "cannot be read as PEM"),
        ({"ssl_key_pem": Secret("-----BEGIN RSA PRIVATE KEY-----\nhunter2", "x")}, "a key that is not in PKCS#8"),
    ],
)
def test_what_the_java_client_cannot_be_told_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(SinkError, match=re.escape(message)) as told:
        java(**config)
    assert "hunter2" not in str(told.value)
    assert "exactly_once" in told.value.remedy


# --- from one delivery to the other ---


def test_a_delivery_is_not_changed_under_a_batch_that_is_half_through(topics: Topics, tmp_path: Path) -> None:
    given = {"bootstrap": topics.bootstrap, "topic": topics.make(), "format": "json", "timeout": 30.0}
    place = ConnectorContext("out", tmp_path, given, flow="f", version="0123456789", work=tmp_path / "work")
    lax, strict = SparkKafkaSink(place), KafkaSink(place)
    batch = BatchId("f", "q", "l1", 3, 1)
    with pytest.raises(Refused, match="was decided with delivery: exactly_once and is not published yet"):
        lax.recover(Decided(batch, "h", behind={"units": 0, "after": {"0": -1}}), lineage="l1", before=3)
    with pytest.raises(Refused, match="was written with delivery: at_least_once"):
        strict.recover(Decided(batch, "h"), lineage="l1", before=3)
    lax.recover(Decided(batch, "h"), lineage="l1", before=3)


def test_outputs_are_not_said_to_be_deleted_while_they_stand(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make()
    given = {"bootstrap": topics.bootstrap, "topic": topic, "format": "json", "timeout": 30.0}
    sink = SparkKafkaSink(ConnectorContext("out", tmp_path, given))
    assert sink.clear(owner="o", flow="f") == 0
    topics.write(topic, range(1))
    with pytest.raises(Refused, match=f"the contents of {topic} cannot be removed"):
        sink.clear(owner="o", flow="f", dry_run=True)


def test_what_brokers_said_to_spark_is_told_in_our_words() -> None:
    sink = SparkKafkaSink(ConnectorContext("out", Path(), SINK.filled({"bootstrap": "b:9092", "topic": "t", "format": "json"})))
    away = sink.fault("Job aborted\norg.apache.kafka.common.errors.TimeoutException: Topic t not present in metadata after 60000 ms.\n at")
    assert isinstance(away, Unreachable)
    assert "Topic t not present in metadata" in away.message
    login = sink.fault("Caused by: org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed")
    assert (type(login), login and login.code) == (SinkError, "kafka-login")
    forbidden = sink.fault("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [t]")
    assert (type(forbidden), forbidden and forbidden.code) == (SinkError, "kafka-forbidden")
    assert sink.fault("[CAST_INVALID_INPUT] The value 'x' ...") is None
