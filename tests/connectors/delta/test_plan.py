"""What a flow file is told of its Delta tables before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT, customer STRING"}}
sinks: {kept: {from: orders, type: delta, path: kept, OPTIONS}}
"""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("mode: upsert", "sink \"kept\" has mode: upsert but no `key`, the columns that identify a row; add key [table-mode]"),
        ("mode: overwrite", "no `partition_by`, the columns whose values select the rows to replace; add partition_by [table-mode]"),
        ("key: [id]", 'has "key", which mode: append does not use; write mode: upsert, or take it out [table-mode]'),
        ("mode: upsert, key: [idd]", 'has key "idd", which is not a column of its input; did you mean "id"? [column-unknown]'),
        ("partition_by: [customr]", ('partitions by "customr", which is not a column of its input; did you mean "customer"? '
                                    '[partition-unknown]')),
        ("endpoint: http://s:9", 'has "endpoint", but its path kept is a local folder; write path: s3://BUCKET/PREFIX, or take'),
        ("mode: changes", "cannot be \"changes\"; write one of append, overwrite, upsert [bad-choice]"),
    ],
)  # fmt: skip
def test_a_mode_is_told_what_it_needs(tmp_path: Path, capfd: pytest.CaptureFixture[str], options: str, told: str) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW.replace("OPTIONS", options))
    with pytest.raises(SystemExit) as left:
        main(["validate", str(tmp_path / "flow.yaml")])
    said = capfd.readouterr()
    assert left.value.code == 2
    assert told in said.out + said.err
    assert "flow.yaml:4:" in said.out + said.err


def test_two_sinks_never_share_a_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flow.yaml").write_text(
        FLOW.replace("kept: {", "other: {from: orders, type: delta, path: ./kept}, kept: {", 1).replace(", OPTIONS", "")
    )
    with pytest.raises(SystemExit):
        main(["validate", str(tmp_path / "flow.yaml")])
    said = capfd.readouterr()
    assert "[folder-two-writers]" in said.out + said.err


STORED = FLOW.replace("path: kept, OPTIONS", 'mode: append, path: "s3://lake/kept"')


@pytest.mark.parametrize(
    ("flow", "told"),
    [
        (
            STORED.replace("s3://", "s3a://"),
            'path begins with "s3a://"; write s3://BUCKET/PREFIX, and the server as `endpoint`; or a plain path for a folder of',
        ),
        (
            STORED.replace("s3://", "s3://key:word@"),
            "path contains a user; remove it: write it as `config`, with the secret as ${secret:env/NAME}",
        ),
        (STORED.replace("mode: append", "endpoint: store"), 'endpoint has "store", which is not an address; write it as https://HOST:PORT'),
        (STORED.replace("mode: append", "config: {secret: a}"), 'config has "secret", which is not part of a login'),
        (
            STORED.replace("sinks: {", "sinks: {all: {from: orders, type: objects, url: s3://lake, format: json}, "),
            'sink "kept" writes to s3://lake/kept, sink "all" to s3://lake; give each its own prefix',
        ),
    ],
)
def test_an_address_is_told_what_is_wrong_with_it(tmp_path: Path, capfd: pytest.CaptureFixture[str], flow: str, told: str) -> None:
    (tmp_path / "flow.yaml").write_text(flow)
    with pytest.raises(SystemExit) as left:
        main(["validate", str(tmp_path / "flow.yaml")])
    said = capfd.readouterr()
    assert left.value.code == 2
    assert told in said.out + said.err
    assert "word" not in (said.out + said.err).replace("password", "")
