"""`package create DIR` and `package inspect FILE`: one file or every mistake, without Spark."""

import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """
version: 1
name: orders
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE"}
steps:
  large: {from: orders, python: "steps:large"}
sinks:
  kept: {from: large, type: files, path: out, format: json}
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "flow.yaml").write_text(GOOD)
    (folder / "steps.py").write_text("def large(row):\n    return row['amount'] > 500\n")
    return folder


def test_a_package_is_made_and_shown(command, folder, tmp_path):
    made = command("package", "create", folder, "--json")
    result = made.object["result"]
    assert (made.status, result["file"], result["name"]) == (0, f"orders-{result['id'][:12]}.package", "orders")
    assert [(flow["name"], flow["path"]) for flow in result["flows"]] == [("orders", "flow.yaml")]
    assert [place["path"] for place in result["flows"][0]["relative"]] == ["data", "out"]
    assert [file["path"] for file in result["files"]] == ["flow.yaml", "steps.py"]
    file = tmp_path / result["file"]
    assert file.stat().st_size == result["size"]
    shown = command("package", "inspect", file, "--json").object["result"]
    assert shown["id"] == result["id"]
    assert shown["files"] == result["files"]
    said = command("package", "create", folder, "--file", tmp_path / "deep" / "shop.package")
    assert (tmp_path / "deep" / "shop.package").read_bytes() == file.read_bytes()
    assert result["id"] in said.out
    assert "flow.yaml" in said.out
    assert "path of orders (data)" in said.out
    assert command("package", "create", "--file", tmp_path / "first.package", folder).status == 0
    assert result["id"] in command("package", "inspect", tmp_path / "first.package").out


def test_mistakes_are_told_with_status_2_and_nothing_is_written(command, folder, tmp_path):
    (folder / "flow.yaml").write_text(GOOD.replace("steps:large", "steps:larg").replace("format: json}", "format: jason}"))
    (folder / "more.yaml").write_text("name: more\nsources: [\n")
    ended = command("package", "create", folder, "--json")
    assert ended.status == 2
    assert {"python-name-missing", "bad-choice", "yaml-syntax"} <= set(ended.codes)
    assert ended.object["result"] is None
    (folder / "more.yaml").write_text(GOOD)
    (folder / "flow.yaml").write_text(GOOD)
    ended = command("package", "create", folder)
    assert ended.status == 2
    assert f"{folder / 'more.yaml'}: error: this file and {folder / 'flow.yaml'} both define flow" in ended.err
    (tmp_path / "empty").mkdir()
    assert command("package", "create", tmp_path / "empty", "--json").codes == ["package-empty"]
    assert command("package", "create", tmp_path / "nowhere", "--json").codes == ["package-folder"]
    assert command("package", "create", folder / "flow.yaml", "--json").codes == ["package-folder"]
    assert command("package", "create", folder, "--file", tmp_path, "--json").codes == ["usage"]
    assert not list(tmp_path.rglob("*.package"))


def test_a_file_that_is_no_package_or_not_whole_is_told(command, folder, tmp_path):
    file = tmp_path / "shop.package"
    assert command("package", "create", folder, "--file", file).status == 0
    whole = file.read_bytes()
    at = whole.index(b"amount'] > 500")
    file.write_bytes(whole[:at] + b"amount'] > 900" + whole[at + 14 :])
    ended = command("package", "inspect", file, "--json")
    assert (ended.status, ended.codes) == (2, ["package-damaged"])  # the archive has a sum of its own
    file.write_bytes(whole[: len(whole) // 2])
    assert command("package", "inspect", file, "--json").codes == ["package-damaged"]
    assert command("package", "inspect", folder, "--json").codes == ["package-missing"]
    assert command("package", "inspect", tmp_path / "nix", "--json").codes == ["package-missing"]


def test_a_folder_named_like_a_command_is_named_with_its_place(command, folder):
    folder.rename(folder.parent / "inspect")
    assert command("package", "create", "inspect", "--json").status == 0
    assert command("package", "./inspect", "--json").status == 0, "the old spelling"
    assert command("package", "inspect", "--json").codes == ["usage"]
    assert command("package").status == 2


def test_no_spark_is_imported(folder):
    program = f"""
import sys
from scribengin.cli.main import main
try:
    main(["package", "create", {str(folder)!r}, "--file", {str(folder / "a.package")!r}])
except SystemExit as left:
    assert not left.code, left.code
heavy = [name for name in ("pyspark", "pyarrow", "duckdb") if name in sys.modules]
assert not heavy, heavy
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert Path(folder / "a.package").is_file()
