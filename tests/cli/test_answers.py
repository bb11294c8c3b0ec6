"""Exit statuses and the one object of --json, whatever goes wrong."""

import os
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from scribengin.cli import guesses
from scribengin.cli import main as cli
from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.tree import COMMANDS, leaves
from scribengin.core.errors import EnvironmentFault, Exit, InputError, Refused, ScribenginError, StateError
from scribengin.core.problems import Place, Problem


def made_command(monkeypatch, function):
    """Let `scribengin version` run `function`."""
    module = type("Module", (), {"command": AnsweringCommand("version", callback=function)})
    monkeypatch.setattr(cli, "import_module", lambda _name: module)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InputError([Problem("key", Place("f.yaml", 3, 4), "wrong", "do right")]), Exit.INPUT, "key"),
        (Refused("second run", remedy="stop the first"), Exit.INPUT, "refused"),
        (EnvironmentFault("no Java", remedy="install it", code="java-missing"), Exit.ENVIRONMENT, "java-missing"),
        (StateError("a hole"), Exit.FAILED, "state"),
        (ScribenginError("failed"), Exit.FAILED, "failed"),
    ],
)
def test_an_error_becomes_its_exit_status_and_problems(monkeypatch, command, error, status, code):
    def fail():
        raise error

    made_command(monkeypatch, fail)
    ended = command("version", "--json")
    assert ended.status == status
    assert ended.codes == [code]
    assert "Traceback" not in ended.err
    ended = command("version")
    assert ended.status == status
    assert ended.out == ""
    assert f"[{code}]" in ended.err


def test_an_unknown_exception_shows_its_traceback_and_asks_for_a_report(monkeypatch, command):
    def fail():
        raise ZeroDivisionError("one over nothing")

    made_command(monkeypatch, fail)
    ended = command("version", "--json")
    assert (ended.status, ended.codes) == (1, ["bug"])
    assert "ZeroDivisionError: one over nothing" in ended.err
    assert "Traceback" in ended.err
    assert "report" in ended.object["problems"][0]["remedy"]


def test_what_others_print_does_not_reach_stdout_under_json(monkeypatch, command):
    def chatter():
        print("from Python")
        os.write(1, b"from the descriptor\n")
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        return CommandAnswer({"a": 1})

    made_command(monkeypatch, chatter)
    ended = command("version", "--json")
    assert ended.object["result"] == {"a": 1}
    for text in ("from Python", "from the descriptor", "from a child"):
        assert text in ended.err
    assert "from Python" in command("version").out


def test_a_wrong_command_line_is_wrong_input_with_a_suggestion(command):
    ended = command("valdate", "--json")
    assert (ended.status, ended.codes) == (2, ["usage"])
    assert 'did you mean "validate"?' in ended.object["problems"][0]["message"]
    assert command("version", "--jsn").status == 2
    assert command("run").status == 2


def test_no_guess_destroys_anything_and_words_of_other_tools_are_known(command):
    def said(*words):
        ended = command(*words, "--json")
        assert (ended.status, ended.codes) == (2, ["usage"])
        return ended.object["problems"][0]["message"]

    assert said("lint").endswith("type: scribengin validate FILE")
    assert said("ps").endswith("type: scribengin list")
    assert said("deploy").endswith("type: scribengin apply FILE")
    assert said("restart", "orders").endswith("type: scribengin stop NAME --wait, then: scribengin resume NAME")
    for words in (("resett",), ("delet",), ("rewnd",), ("node", "drian"), ("dead-letter", "prge"), ("offsets", "ste"), ("token", "remoev")):
        assert "did you mean" not in said(*words), words
    assert 'there is no command "dead-letter lst"; did you mean "list"?' in said("dead-letter", "lst")
    assert command("help", "validate").out == command("validate", "--help").out
    assert command("help").out == command("--help").out


def test_every_command_that_a_word_of_another_tool_leads_to_is_there():
    for ours in guesses._OURS.values():
        for command_ in re.findall(r"scribengin ([\w-]+)", ours):
            assert command_ in COMMANDS, ours
    assert not guesses._OURS.keys() & COMMANDS.keys()


def test_ctrl_c_in_a_command_leaves_with_130(monkeypatch, command):
    def interrupted():
        raise KeyboardInterrupt

    made_command(monkeypatch, interrupted)
    assert command("version").status == 130


def test_a_question_that_is_answered_with_no_is_no_mistake_of_ours(monkeypatch, command):
    def refused():
        raise click.Abort

    made_command(monkeypatch, refused)
    ended = command("version")
    assert (ended.status, ended.err) == (130, "")


def test_a_reader_that_leaves_early_is_no_traceback():
    command = f"{sys.executable} -m scribengin.cli completion bash --json"
    ended = subprocess.run(["bash", "-c", f"{command} | true"], capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr


def test_every_listed_command_is_there_and_knows_json(command):
    with click.Context(cli.scribengin) as context:
        for name, _ in leaves():
            *above, last = name.split()
            group = cli.scribengin.get_command(context, above[0]) if above else cli.scribengin
            found = group.get_command(context, last)
            if name == "agent run":
                continue  # it becomes another process, which has the same options and no answer
            for leaf in found.commands.values() if isinstance(found, click.Group) else [found]:
                assert isinstance(leaf, AnsweringCommand), name
                assert any("--json" in parameter.opts for parameter in leaf.params), name
                assert leaf.help, name


def test_version_names_what_it_runs_on(command):
    result = command("version", "--json").object["result"]
    assert result.keys() == {"scribengin", "pyspark", "python"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(command, shell):
    assert "_SCRIBENGIN_COMPLETE" in command("completion", shell).out
    assert command("completion", shell, "--json").object["result"]["shell"] == shell


def test_completion_knows_the_commands():
    words = {"_SCRIBENGIN_COMPLETE": "bash_complete", "COMP_WORDS": "scribengin va", "COMP_CWORD": "1"}
    ended = subprocess.run([sys.executable, "-m", "scribengin.cli"], env=os.environ | words, capture_output=True, text=True, check=False)
    assert "validate" in ended.stdout


def test_a_plan_is_coloured_by_what_becomes_of_each_query_on_a_terminal_alone(command, tmp_path):
    command("init", "shop")
    told = command("plan", "shop/flow.yaml").out
    assert "\x1b" not in told
    coloured = CliRunner().invoke(cli.scribengin, ["plan", str(tmp_path / "shop/flow.yaml")], color=True).output
    assert "\n  kept  \x1b[32mnew\x1b[0m: starts at Batch 0" in coloured
    assert "\n\x1b[1mquery kept\x1b[0m: " in coloured
    assert click.unstyle(coloured) == told
