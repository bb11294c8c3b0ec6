"""Settings of flags, file and environment."""

from __future__ import annotations

import io
from argparse import ArgumentParser
from pathlib import Path

import msgspec
import pytest

from scribengin.agent.log import AgentLog
from scribengin.agent.process import main
from scribengin.agent.settings import AgentSettings, add_flags, read_settings, tags_of
from scribengin.core.errors import EnvironmentFault, Refused, ScribenginError


def settings_of(*arguments: str) -> AgentSettings:
    parser = ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    return read_settings(parser.parse_args(arguments))


def test_flags_override_the_file_and_paths_of_the_file_are_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE", "north")
    (tmp_path / "token").write_text(" t0k \n")
    (tmp_path / "agent.toml").write_text(
        'name = "of-file"\ngroup = "web"\ngateways = ["https://g1:7443/"]\ntoken_file = "token"\ndata = "data"\nstop_s = 3\n'
        '[tags]\nsite = "${env:SITE}"\napp = "${path:-1}"\n'
    )
    made = settings_of("--settings", str(tmp_path / "agent.toml"), "--name", "of-flag", "--log", "json")
    assert (made.name, made.group, made.gateways, made.log, made.stop_s) == ("of-flag", "web", ("https://g1:7443",), "json", 3)
    assert (made.data, made.token(), dict(made.tags)) == (tmp_path / "data", "t0k", {"site": "north", "app": "${path:-1}"})


def test_the_token_comes_from_the_environment_and_there_is_no_flag_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIBENGIN_AGENT_TOKEN", "abc")
    assert settings_of("--gateway", "https://g").token() == "abc"
    with pytest.raises(SystemExit):
        settings_of("--gateway", "https://g", "--token", "abc")


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1", "https://far.example"])
def test_addresses_that_are_secure_or_of_this_host(url: str) -> None:
    assert settings_of("--gateway", url).gateways == (url,)


@pytest.mark.parametrize("url", ["http://far.example", "http://10.0.0.1:7443", "http://localhost.evil.example"])
def test_plain_http_to_other_hosts_is_refused_unless_it_is_allowed(url: str) -> None:
    with pytest.raises(Refused, match="not encrypted"):
        settings_of("--gateway", url)
    assert settings_of("--gateway", url, "--insecure").gateways == (url,)


@pytest.mark.parametrize("url", ["", "g:7443", "ftp://g", "https://", "https://g:99999", "https://u:p@g", "https://g?x=1"])
def test_what_is_not_an_address_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="not a valid address"):
        settings_of("--gateway", url)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "not valid TOML"),
        ("colour = 1", "unknown setting 'colour'"),
        ('token = "abc"', "a token does not belong in the settings"),
        ('gateways = "https://g"', "expected list"),
        ("timeout_s = true", "expected int or float"),
        ('name = "a b"\ngateways = ["https://g"]', "is not valid"),
        ('gateways = ["https://g"]\n[tags]\na = 1', "expected a text"),
        ('gateways = ["https://g"]\n[tags]\na = "${env:NOT_SET_AT_ALL}"', "NOT_SET_AT_ALL is not set"),
        ('gateways = ["https://g"]\n[tags]\na = "${home}"', "there are"),
        ('group = "x"', "no gateway is given"),
        ('gateways = ["https://g"]\ntoken_file = "missing"', "token file .* cannot be read"),
    ],
)
def test_a_settings_file_that_is_not_valid_is_refused_with_what_was_found(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "agent.toml").write_text(text)
    with pytest.raises(ScribenginError, match=words):
        settings_of("--settings", str(tmp_path / "agent.toml"))


def test_certificates_that_cannot_be_used_are_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    for flag, words in (("--ca", "name a PEM file"), ("--certificate", "as PEM files that belong together")):
        for file in ("bad.pem", "missing.pem"):
            with pytest.raises(EnvironmentFault) as caught:
                settings_of("--gateway", "https://g", flag, str(tmp_path / file)).tls()
            assert words in caught.value.remedy


def test_the_command_says_what_is_wrong_and_how_to_mend_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--gateway", "http://far.example"]) == 2
    text = capsys.readouterr().err
    assert "error: http://far.example is not encrypted" in text
    assert "; use https://" in text


def test_tags_of_a_path() -> None:
    assert tags_of({"a": "${path}", "b": "${path:1}", "c": "${path:-2}", "d": "${path:9}", "e": "x"}, "/var/log/x.log") == {
        "a": "/var/log/x.log",
        "b": "var",
        "c": "log",
        "d": "",
        "e": "x",
    }


def test_a_text_that_repeats_is_counted_and_not_written_again() -> None:
    now, out = [0.0], io.StringIO()
    log = AgentLog(form="json", out=out, clock=lambda: now[0])
    for _ in range(1000):
        log.warning("the same", place=Path("/x"))
        now[0] += 0.1
    log.debug("nothing")
    written = [msgspec.json.decode(line) for line in out.getvalue().splitlines()]
    assert [(line["level"], line["text"], line["place"], line.get("repeated")) for line in written] == [
        ("warning", "the same", "/x", None),
        ("warning", "the same", "/x", 599),
    ]
    plain = io.StringIO()
    AgentLog(out=plain).error("two\nlines", count=3)
    assert plain.getvalue().endswith("error   two lines count=3\n")
    assert plain.getvalue().count("\n") == 1
