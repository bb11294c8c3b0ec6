"""What can be seen of the chart without Helm: its values, their schema, what templates use of them, and the image."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft7Validator

from scribengin.worker import image_entry
from tests.deploy.chart import CASES, CHART, ROOT, values_of

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
ABOUT: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
_USED = re.compile(r"\.Values\.([A-Za-z.]+)")


def paths(values: dict[str, Any], before: str = "") -> Iterator[str]:
    """Of all values, and of what is around them."""
    for name, value in values.items():
        yield f"{before}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{before}{name}.")


def paths_of_schema(schema: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, each in schema.get("properties", {}).items():
        yield f"{before}{name}"
        yield from paths_of_schema(each, f"{before}{name}.")


def merged(values: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """As Helm merges values."""
    both = {name: merged(values[name], over[name]) for name in values.keys() & over.keys() if isinstance(over[name], dict)}
    return values | over | both


def test_the_schema_is_one_and_takes_the_values_of_each_case() -> None:
    Draft7Validator.check_schema(SCHEMA)
    validator = Draft7Validator(SCHEMA)
    assert CASES == ["full", "minimal", "secrets"]
    for values in (VALUES, *(merged(VALUES, yaml.safe_load(values_of(case).read_text())) for case in CASES)):
        assert [error.message for error in validator.iter_errors(values)] == []


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"registry": {"address": "z1:2181"}}, "registry.address"),
        ({"registry": {"adress": "zk://z1/flows"}}, "registry"),
        ({"registry": {"password": "flows:s3cret"}}, "registry"),
        ({"registry": {"existingSecret": "flows:s3cret"}}, "registry.existingSecret"),
        ({"image": {"digest": "latest"}}, "image.digest"),
        ({"state": "flows/state"}, "state"),
        ({"masters": {"replicas": "2"}}, "masters.replicas"),
        ({"masters": {"port": 0}}, "masters.port"),
        ({"service": {"type": "ExternalName"}}, "service.type"),
        ({"workers": {"rights": {"pods": True}}}, "workers.rights"),
    ],
)
def test_what_is_not_a_value_is_found(wrong: dict[str, Any], where: str) -> None:
    (error,) = Draft7Validator(SCHEMA).iter_errors(merged(VALUES, wrong))
    assert ".".join(map(str, error.absolute_path)) == where


def test_values_schema_and_templates_name_the_same() -> None:
    known = set(paths(VALUES))
    free = re.compile(r"(\w+\.resources|podSecurityContext|securityContext)\.")  # of Kubernetes, as they are
    assert {path for path in known if not free.match(path)} == set(paths_of_schema(SCHEMA)) - {"global"}
    text = "\n".join(file.read_text() for file in sorted((CHART / "templates").iterdir()))
    by_part = {f"{part}.{name}" for part in ("masters", "nodes", "workers") for name in re.findall(r"\.values\.([A-Za-z.]+)", text)}
    named = set(_USED.findall(text))
    assert named - known == set()
    used = named | by_part | {f"{part}.serviceAccount" for part in ("masters", "nodes", "workers")}  # a loop has those
    below = {path for path in known if any(path.startswith(f"{each}.") for each in used)}
    around = {path for path in known if any(each.startswith(f"{path}.") for each in used)}
    assert known - used - below - around == set()


def test_no_value_is_a_secret_by_default_and_all_that_must_be_named_is_empty() -> None:
    named = {path for path in paths(VALUES) if path.endswith(("Secret", "existingClaim", "registry.address")) or path == "state"}
    assert len(named) >= 8
    for path in named:
        value: Any = VALUES
        for name in path.split("."):
            value = value[name]
        assert value == "", path


def test_the_page_names_values_that_there_are() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    known = set(paths(VALUES))
    named = {name for name in re.findall(r"`([a-zA-Z]+(?:\.[a-zA-Z]+)+)[`:]", page) if name.partition(".")[0] in VALUES}
    assert len(named) > 15
    assert {name for name in named if not name.endswith((".crt", ".key", ".json"))} - known == set()


def test_the_chart_has_the_version_of_the_package() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (ABOUT["apiVersion"], ABOUT["appVersion"], ABOUT["version"]) == ("v2", package, package)


def test_the_image_begins_with_the_program_that_becomes_an_executor() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    (entry,) = (json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines if line.startswith("ENTRYPOINT "))
    assert entry == ["/usr/bin/tini", "-s", "--", "python", "-m", image_entry.__name__]
    (user,) = (int(line.removeprefix("USER ")) for line in lines if line.startswith("USER "))
    context = VALUES["podSecurityContext"]
    assert {context[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {user}
