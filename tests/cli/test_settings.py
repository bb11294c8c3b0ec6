"""scribengin.yaml < environment < flags, each with its origin, and every mistake at once."""

from pathlib import Path

import pytest

from scribengin.cli.settings import SETTINGS, read_settings
from scribengin.core.errors import InputError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def problems_of(text):
    Path("scribengin.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_settings()
    return [(problem.code, problem.place.line, problem.place.column) for problem in caught.value.problems]


def test_without_anything_every_setting_is_its_default():
    assert all(chosen.origin == "default" for chosen in read_settings().values())
    assert set(read_settings()) == {setting.name for setting in SETTINGS}


def test_the_later_layer_wins_and_is_named(monkeypatch):
    Path("scribengin.yaml").write_text("strict: true\nmetrics: 9000\nstate: kept\nspark_conf: {a.b: c}\n")
    monkeypatch.setenv("SCRIBENGIN_METRICS", "9001")
    monkeypatch.setenv("SCRIBENGIN_SPARK_CONF", "x=1, y=a=b")
    chosen = read_settings({"state": Path("flagged"), "strict": None, "spark_conf": ()})
    assert (chosen["strict"].value, chosen["strict"].origin) == (True, "scribengin.yaml:1")
    assert (chosen["metrics"].value, chosen["metrics"].origin) == (9001, "SCRIBENGIN_METRICS")
    assert (chosen["state"].value, chosen["state"].origin) == (Path("flagged"), "--state")
    assert chosen["spark_conf"].value == {"x": "1", "y": "a=b"}


def test_a_path_of_the_file_starts_at_the_file(tmp_path, monkeypatch):
    named = tmp_path / "etc" / "mine.yaml"
    named.parent.mkdir()
    named.write_text("state: states\n")
    monkeypatch.setenv("SCRIBENGIN_CONFIG", str(named))
    assert read_settings()["state"].value == tmp_path / "etc" / "states"


def test_every_mistake_of_the_file_is_told_with_its_place():
    assert problems_of("metrics: 70000\nstrit: true\nstrict: maybe\nprogress: {a: 1}\n") == [
        ("setting-value", 1, 10),
        ("setting-unknown", 2, 1),
        ("setting-value", 3, 9),
        ("setting-value", 4, 11),
    ]


def test_a_file_that_is_no_mapping_or_no_yaml_is_told():
    assert problems_of("- a\n") == [("setting-file", 1, 1)]
    assert problems_of("a: [1\nb: 2\n")[0][:2] == ("yaml", 2)


def test_a_slip_in_a_variable_is_told_and_other_variables_are_left_alone(monkeypatch):
    monkeypatch.setenv("SCRIBENGIN_OF_SOMEONE_ELSE", "1")
    read_settings()
    monkeypatch.setenv("SCRIBENGIN_STRICTT", "1")
    with pytest.raises(InputError, match='did you mean "SCRIBENGIN_STRICT"'):
        read_settings()


def test_config_show_gives_every_value_with_its_origin(command, monkeypatch):
    monkeypatch.setenv("SCRIBENGIN_STRICT", "true")
    result = command("config", "show", "--spark-memory", "2g", "--json").object["result"]
    origins = {row["name"]: row["origin"] for row in result["settings"]}
    assert origins["strict"] == "SCRIBENGIN_STRICT"
    assert origins["spark_memory"] == "--spark-memory"
    assert origins["state"] == "default"
    assert "SCRIBENGIN_STRICT" in command("config", "show").out
