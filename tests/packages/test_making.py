"""From a folder to a package: what goes in, the same bytes for the same content, and every mistake at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import InputError
from scribengin.packages.make import make_package
from scribengin.packages.package import LIMIT_BYTES, open_package

if TYPE_CHECKING:
    from pathlib import Path

KAFKA = """\
version: 1
name: messages
sources:
  numbers: {type: sequence, rows: 10}
sinks:
  kept:
    from: numbers
    type: kafka
    bootstrap: "127.0.0.1:9"
    topic: kept
    format: avro
    avro_schema: SCHEMA
    config: {sasl.password: "${secret:env/SHOP_PASSWORD}", ssl.key.password: "${secret:file/keys/password}"}
"""


def problems(folder: Path, **environment: str) -> list[tuple[str, str]]:
    """(code, file) of each that keeps a package from being made."""
    with pytest.raises(InputError) as told:
        make_package(folder, environment)
    assert all(problem.message and problem.remedy for problem in told.value.problems)
    return [(problem.code, os.path.relpath(problem.place.file, folder)) for problem in told.value.problems if problem.severity == "error"]


def test_flows_modules_and_requirements_go_in_and_nothing_else(folder: Path) -> None:
    manifest = make_package(folder, {}).package.manifest
    assert [file.path for file in manifest.files] == [
        "lib/__init__.py",
        "lib/names.py",
        "numbers_flow.py",
        "orders.yaml",
        "requirements.lock",
        "steps.py",
    ]
    assert [(flow.name, flow.path) for flow in manifest.flows] == [("numbers", "numbers_flow.py"), ("orders", "orders.yaml")]
    assert (manifest.name, manifest.requirements) == ("numbers+orders", ("requirements.lock",))


def test_the_same_content_elsewhere_at_another_time_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first = make_package(folder, {}).package
    copy = tmp_path / "elsewhere" / "with another name"
    shutil.copytree(folder, copy)
    os.utime(copy / "steps.py", (1, 1))
    (copy / "steps.py").chmod(0o600)
    program = f"""
import hashlib, os
from pathlib import Path
from scribengin.packages.make import make_package
os.umask(0o077)
print(hashlib.sha256(make_package(Path({str(copy)!r}), {{}}).package.data).hexdigest())
"""
    other = subprocess.run(
        [sys.executable, "-c", program], cwd="/", env=os.environ | {"TZ": "Asia/Tokyo"}, capture_output=True, text=True, check=False
    )
    assert other.stdout.strip() == first.id, other.stderr
    (copy / "steps.py").write_text((copy / "steps.py").read_text() + "\n")
    assert make_package(copy, {}).package.id != first.id


def test_a_text_stands_for_a_flow_file_and_code_goes_along(folder: Path) -> None:
    text = (folder / "orders.yaml").read_text() + "\n# in tiers\n"
    package = make_package(folder, {}, texts={"orders.yaml": text}).package
    assert [(flow.name, flow.path) for flow in package.manifest.flows] == [("numbers", "numbers_flow.py"), ("orders", "orders.spread.yaml")]
    assert package.content["orders.spread.yaml"] == text.encode()
    assert "orders.yaml" not in package.content
    in_python = make_package(folder, {}, texts={"numbers_flow.py": text}).package
    assert in_python.manifest.flows[0].path == "numbers_flow.spread.yaml"
    assert "numbers_flow.py" in in_python.content  # its functions are found there


def test_a_package_is_read_as_it_was_made(folder: Path) -> None:
    package = make_package(folder, {}).package
    assert open_package(package.data, "here", expected=package.id) == package
    assert package.content["orders.yaml"] == (folder / "orders.yaml").read_bytes()


def test_every_mistake_of_every_flow_is_told_at_once(folder: Path) -> None:
    broken = (folder / "orders.yaml").read_text().replace("steps:marked", "steps:marks")
    (folder / "orders.yaml").write_text(broken)
    (folder / "second.yml").write_text("name: second\nsources: {a: {type: file}}\nsinks: [\n")
    (folder / "third_flow.py").write_text("from scribengin import Flow\nflow = Flow(\n")
    found = problems(folder)
    assert ("python-name-missing", "orders.yaml") in found
    assert {file for _, file in found} == {"orders.yaml", "second.yml", "third_flow.py"}


def test_two_files_that_claim_one_flow_are_refused_and_both_are_named(folder: Path) -> None:
    shutil.copy(folder / "orders.yaml", folder / "orders-old.yaml")
    with pytest.raises(InputError) as told:
        make_package(folder, {})
    (problem,) = told.value.problems
    assert problem.code == "package-flow-twice"
    assert "orders.yaml" in problem.place.file
    assert "orders-old.yaml" in problem.message


SINK_WITHOUT_URL = """\
version: 1
name: far
sources: {numbers: {type: sequence}}
sinks:
  kept: {from: numbers, type: hdfs, format: json}
"""


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("far.yaml", SINK_WITHOUT_URL, "has 1 error; the first, in line 5"),
        ("far.yaml", "name: second\nsources: {a: {type: file}}\nsinks: [\n", "the first, in line"),
        ("far_flow.py", "from scribengin import Flow\nflow = Flow(\n", "not valid Python"),
        ("far.yaml", None, "the file cannot be read"),
        ("far.yaml", "orders", "and orders.yaml both define flow"),
        ("far.yaml", "avro", "that file does not exist"),
    ],
)
def test_a_bad_flow_beside_the_one_that_is_asked_for_is_left_out_with_a_warning(
    folder: Path, file: str, text: str | None, told: str
) -> None:
    sound = make_package(folder, {}).package
    far = folder / file
    if text is None:
        far.mkdir()
        far.rename(folder / "far")
        far.symlink_to(folder / "nowhere.yaml")
    elif text == "orders":
        shutil.copy(folder / "orders.yaml", far)
    else:
        lost = SINK_WITHOUT_URL.replace(
            "type: hdfs, format: json", "type: kafka, bootstrap: b, topic: t, format: avro, avro_schema: x.avsc"
        )
        far.write_text(lost if text == "avro" else text)
    made = make_package(folder, {}, asked="orders.yaml")
    (warning,) = [each for each in made.warnings if each.code == "flow-left-out"]
    assert (warning.severity, warning.place.file) == ("warning", str(far))
    assert told in warning.message.replace(f"{folder}/", "")
    assert [flow.path for flow in made.package.manifest.flows] == [flow.path for flow in sound.manifest.flows]
    assert problems(folder), "asked for as a whole the folder is refused"
    if text == "orders":
        assert [flow.path for flow in make_package(folder, {}, asked=file).package.manifest.flows] == ["numbers_flow.py", "far.yaml"]
    else:
        with pytest.raises(InputError):
            make_package(folder, {}, asked=file)


def test_a_folder_without_a_flow_is_refused_and_one_below_is_named(folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "orders.yaml").rename(folder / "below" / "orders.yaml")
    (folder / "numbers_flow.py").unlink()
    with pytest.raises(InputError) as told:
        make_package(folder, {})
    (problem,) = told.value.problems
    assert (problem.code, problem.place.file) == ("package-empty", str(folder))
    assert str(folder / "below") in problem.remedy
    assert problems(folder / "orders.yaml") == [("package-folder", ".")]
    assert problems(folder / "nowhere") == [("package-folder", ".")]


def test_links_that_lead_out_of_the_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "more.py").write_text("")
    (folder / "inside.py").symlink_to(folder / "steps.py")
    assert "inside.py" in make_package(folder, {}).package.content
    (folder / "linked.py").symlink_to(tmp_path / "outside.py")
    (folder / "shared").symlink_to(tmp_path / "shared")
    assert sorted(problems(folder)) == [("package-link", "linked.py"), ("package-link", "shared")]


def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "gone.py").symlink_to(folder / "nowhere.py")
    found = problems(folder)
    assert found
    assert {code for code, _ in found} == {"package-file"}


def test_a_flow_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "gone.yaml").symlink_to(folder / "nowhere.yaml")
    assert problems(folder) == [("package-file", "gone.yaml")]


def test_modules_and_a_whole_that_are_too_large_are_refused(folder: Path) -> None:
    (folder / "big.py").write_bytes(b"#" * (20 * 2**20))
    assert problems(folder) == [("package-size", ".")]
    (folder / "big.py").unlink()
    (folder / "requirements.txt").write_bytes(b"#" * LIMIT_BYTES)
    assert problems(folder) == [("package-size", ".")]


def test_schema_files_travel_and_those_outside_are_refused(folder: Path, tmp_path: Path) -> None:
    schema = '{"type": "record", "name": "Number", "fields": [{"name": "id", "type": "long"}]}'
    (folder / "schemas").mkdir()
    (folder / "schemas" / "number.avsc").write_text(schema)
    (folder / "messages.yaml").write_text(KAFKA.replace("SCHEMA", "schemas/number.avsc"))
    package = make_package(folder, {}).package
    assert package.content["schemas/number.avsc"] == schema.encode()
    (tmp_path / "number.avsc").write_text(schema)
    (folder / "messages.yaml").write_text(KAFKA.replace("SCHEMA", "../number.avsc"))
    assert problems(folder) == [("package-link", "messages.yaml")]
    (folder / "messages.yaml").write_text(KAFKA.replace("SCHEMA", "number.avsc"))
    assert problems(folder) == [("package-file", "messages.yaml")]


def test_secrets_stay_references_whether_their_values_are_known_or_not(folder: Path) -> None:
    (folder / "number.avsc").write_text("{}")
    (folder / "messages.yaml").write_text(KAFKA.replace("SCHEMA", "number.avsc"))
    without = make_package(folder, {})
    assert {problem.code for problem in without.warnings} == {"secret-missing"}
    assert without.relative["messages"] is None
    (folder / "keys").mkdir()
    (folder / "keys" / "password").write_text("correct horse battery")
    known = make_package(folder, {"SHOP_PASSWORD": "hunter2-hunter2"})
    assert known.package.data == without.package.data
    assert not known.warnings
    assert [str(place) for place in known.relative["messages"] or ()] == ["config of kept (keys/password)"]
    for value in (b"hunter2-hunter2", b"correct horse battery"):
        assert value not in known.package.data


def test_a_secret_that_would_travel_is_refused_and_its_value_is_not_shown(folder: Path) -> None:
    (folder / "number.avsc").write_text("{}")
    (folder / "messages.yaml").write_text(KAFKA.replace("SCHEMA", "number.avsc").replace("keys/password", "key_file.py"))
    (folder / "key_file.py").write_text("correct-horse-battery")
    (folder / "messages.yaml").write_text((folder / "messages.yaml").read_text().replace('"${secret:env', '"ada:${secret:env'))
    (folder / "settings.py").write_text("PASSWORD = 'hunter2-hunter2'\n")
    (folder / "requirements.txt").write_text("--index-url https://ada:hunter3@packages.example/simple\n")
    with pytest.raises(InputError) as told:
        make_package(folder, {"SHOP_PASSWORD": "hunter2-hunter2"})
    found = told.value.problems
    assert {problem.code for problem in found} == {"package-secret"}
    assert {os.path.relpath(problem.place.file, folder) for problem in found} == {
        "messages.yaml",
        "key_file.py",
        "settings.py",
        "requirements.txt",
    }
    assert not any(value in str(problem) for problem in found for value in ("hunter2", "hunter3", "correct-horse"))


def test_pip_may_fill_in_a_password(folder: Path) -> None:
    (folder / "requirements.txt").write_text("--index-url https://${NAME}:${PASSWORD}@packages.example/simple\n")
    assert make_package(folder, {}).package.manifest.requirements == ("requirements.lock", "requirements.txt")


def test_a_flow_that_asks_for_a_value_of_its_host_is_packed_with_a_warning(folder: Path) -> None:
    (folder / "orders.yaml").write_text((folder / "orders.yaml").read_text().replace("path: data", 'path: "${env:SHOP_DATA}"'))
    made = make_package(folder, {})
    assert [(problem.code, problem.severity) for problem in made.warnings] == [("env-missing", "warning")]
    assert made.relative["orders"] is None
    assert make_package(folder, {"SHOP_DATA": "there"}).package == made.package


def test_only_files_that_look_like_flows_are_flows(folder: Path) -> None:
    (folder / "compose.yaml").write_text("version: '3'\nservices:\n  db:\n    sources: 5\n")
    (folder / "half.py").write_text("flow = 5\n")
    (folder / "braces.yaml").write_text(
        "{version: 1, name: braces, sources: {n: {type: sequence}}, sinks: {out: {from: n, type: console}}}\n"
    )
    flows = make_package(folder, {}).package.manifest.flows
    assert [flow.name for flow in flows] == ["braces", "numbers", "orders"]
