"""`--metrics PORT`, read over HTTP while a run goes on."""

import re
import socket
import threading
import time
from urllib.request import urlopen

import pytest

from scribengin.core.errors import EnvironmentFault, Exit
from scribengin.embedded.server import free_ports

ENDLESS = """\
version: 1
name: endless
sources:
  numbers: {type: sequence, rate: 200}
steps:
  even: {from: numbers, python: "steps:even"}
sinks:
  kept: {from: even, type: files, path: out, format: json, trigger: 200ms}
"""


@pytest.fixture
def port():
    """Not one of those that any connection of this machine may be given meanwhile."""
    return free_ports(1)[0]


def read(port):
    """Sample → value."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(scribengin\S*) (\S+)$", text, re.MULTILINE)}


@pytest.mark.timeout(400)
def test_figures_are_served_while_the_run_goes_on_and_the_port_is_free_after_it(folder, port):
    from scribengin.local.contract import RunSettings
    from scribengin.local.run import run_flow

    folder.flow(ENDLESS).steps("def even(row):\n    return row['id'] % 2 == 0\n")
    settings = RunSettings(metrics_port=port)
    results = []
    run = threading.Thread(
        target=lambda: results.append(run_flow(folder.path / "flow.yaml", settings, lambda view: None, spark=folder.spark))
    )
    run.start()
    out = 'scribengin_rows_total{flow="endless",kind="out",query="kept"}'
    deadline = time.monotonic() + 200
    samples = {}
    try:
        while not samples.get(out) and time.monotonic() < deadline and run.is_alive():
            try:
                samples = read(port)
            except OSError:  # not open yet
                time.sleep(0.1)
    finally:
        settings.stop.set()
        run.join()
    assert samples[out] > 0
    assert samples[out.replace('"out"', '"in"')] == samples[out] + samples[out.replace('"out"', '"filtered"')]
    assert samples['scribengin_batches_total{flow="endless",query="kept"}'] >= 1
    assert samples['scribengin_batch_seconds_total{flow="endless",phase="process",query="kept"}'] > 0
    assert samples['scribengin_restarts_total{flow="endless",query="kept"}'] == 0
    states = [name for name, value in samples.items() if name.startswith("scribengin_query_state") and value == 1]
    assert len(states) == 1
    assert results[0].state == "stopped"
    with pytest.raises(OSError, match="refused"):
        read(port)


def test_a_port_that_is_taken_is_told_before_spark_starts(tmp_path):
    from scribengin.local.contract import RunSettings
    from scribengin.local.run import run_flow

    (tmp_path / "flow.yaml").write_text(ENDLESS)
    (tmp_path / "steps.py").write_text("def even(row):\n    return True\n")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(EnvironmentFault, match=f"port {taken} of 127.0.0.1 is in use by another process") as caught:
            run_flow(tmp_path / "flow.yaml", RunSettings(metrics_port=taken), lambda view: None)
    assert caught.value.exit is Exit.ENVIRONMENT
    assert "--metrics" in caught.value.remedy


def test_a_query_that_falls_behind_needs_infinite_time():
    from scribengin.local.contract import QueryView, RunView
    from scribengin.local.metrics import _Views

    views = _Views()
    level = QueryView("level", "running", lag_rows=0)
    nearly = QueryView("nearly", "running", lag_rows=100, lag_s=3.0, catch_up_s=40.0)
    behind = QueryView("behind", "running", lag_rows=100, falls_behind=True, lost=85, lost_unknown=1)
    views.take(RunView("f", "running", 1.0, (level, nearly, behind)))
    samples = {(sample.name, sample.labels.get("query")): sample.value for family in views.collect() for sample in family.samples}
    name = "scribengin_catch_up_seconds"
    assert (samples[name, "nearly"], samples[name, "behind"]) == (40.0, float("inf"))
    assert (name, "level") not in samples
    assert samples["scribengin_lag_seconds", "nearly"] == 3.0
    assert (samples["scribengin_lost_total", "behind"], samples["scribengin_lost_unknown_total", "behind"]) == (85, 1)
