"""Names of commands: old spellings reach the code of the new ones, in the form that they had, and say so once on stderr."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from scribengin.cli.main import scribengin
from scribengin.cli.plane_option import Masters
from scribengin.cli.tree import COMMANDS, RENAMED, RENAMED_OPTIONS, Renamed, leaves, renamed
from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

    from tests.cli.conftest import Command

WORDS = {
    "up": "server dev",
    "master --registry zk://h:1": "server master --registry zk://h:1",
    "node --registry zk://h:1": "server node --registry zk://h:1",
    "nodes": "node list",
    "nodes host2": "node describe host2",
    "map orders.core host2": "node map orders.core host2",
    "unmap orders.core": "node unmap orders.core",
    "spawn orders.core host2": "node start-tier orders.core host2",
    "decommission host2 --wait": "node drain host2 --wait",
    "decommission host2 --undo": "node undrain host2",
    "decommission host2 --forget": "node remove host2",
    "source show f.yaml": "offsets show f.yaml",
    "source set f.yaml events end --dry-run": "offsets set f.yaml events end --dry-run",
    "source skip f.yaml a.json": "offsets skip f.yaml a.json",
    "rewind orders --to-batch 3": "offsets rewind orders --to-batch 3",
    "groups list": "group list",
    "groups show db": "group show db",
    "groups set db second --out --why disk": "group disable db second --reason disk",
    "groups set db second --back": "group enable db second",
    "groups set db second --cost 2": "group set-cost db second 2",
    "ops": "operation list",
    "ops orders": "operation list orders",
    "ops list orders": "operation list orders",
    "ops cancel orders 3": "operation cancel orders 3",
    "alerts orders": "alerts list orders",
    "alerts -l team=shop": "alerts list -l team=shop",
    "dead list f.yaml": "dead-letter list f.yaml",
    "dead show f.yaml": "dead-letter show f.yaml",
    "dead edit f.yaml k": "dead-letter edit f.yaml k",
    "dead replay f.yaml": "dead-letter replay f.yaml",
    "dead purge f.yaml": "dead-letter purge f.yaml",
    "dead export f.yaml --to x": "dead-letter export f.yaml --to x",
    "files list f.yaml": "object list f.yaml",
    "package shop": "package create shop",
    "package shop -o x": "package create shop --file x",
    "package --output=x shop": "package create --file=x shop",
    "package make shop": "package create shop",
    "package show x": "package inspect x",
    "show f.yaml --resolved": "config resolved f.yaml",
    "show f.yaml": "config resolved f.yaml --as-written",
    "schema": "config schema",
    "services start kafka": "dev-services start kafka",
    "services stop": "dev-services stop",
    "services status": "dev-services status",
    "jars fetch kafka": "dev-jars fetch kafka",
}
"""Every spelling of the release before that has another one now"""
FORMS = {words: new for words, new in WORDS.items() if (old := renamed(words.split())) and old[0].kept}
"""those whose command had another form: they are called, and ask the same of a master"""


def leaf(words: list[str]) -> tuple[click.Command, list[str]]:
    """(the command that a command line reaches, what follows its name)"""
    command: click.Command = scribengin
    while isinstance(command, click.Group):
        context = click.Context(command)
        command.parse_args(context, list(words))
        name, found, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None, name
        command = found
    return command, words


def test_every_old_spelling_of_the_table_is_tried() -> None:
    tried = {found[0] for words in WORDS if (found := renamed(words.split()))}
    assert tried == set(RENAMED)
    assert not [words for words in WORDS.values() if renamed(words.split())], "a new one is none of the old ones"


@pytest.mark.parametrize(("old", "new"), [pair for pair in WORDS.items() if pair[0] not in FORMS])
def test_an_old_spelling_reaches_the_code_of_the_new_one_with_the_same_words(old: str, new: str) -> None:
    (command, given), (expected, now) = leaf(old.split()), leaf(new.split())
    assert command is expected
    assert given == now


class Asked(Exception):  # what a command asks a master, in place of an answer
    pass


class Recorder:
    def __getattr__(self, name: str) -> Any:
        def ask(*some: Any, **more: Any) -> None:
            raise Asked(name, some, more)

        return ask


@pytest.mark.parametrize("old", [old for old in FORMS if "f.yaml" not in old])
def test_a_command_of_another_form_asks_the_same(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def asked(_masters: Masters) -> Iterator[Recorder]:
        yield Recorder()

    monkeypatch.setattr(Masters, "client", asked)
    monkeypatch.setattr(Masters, "reader", asked)

    def question(words: str) -> Any:
        command, given = leaf(words.split())
        context = click.Context(command)
        command.parse_args(context, given)
        params = {name: value for name, value in context.params.items() if name not in ("as_json", "output_form")}
        with pytest.raises(Asked) as caught:
            context.invoke(command.callback, **params)
        return caught.value.args

    assert question(old) == question(WORDS[old])


@pytest.mark.parametrize("old", [old for old in FORMS if "f.yaml" in old])
def test_a_flow_is_printed_as_before(command: Command, old: str) -> None:
    command("init", "shop")
    before, now = (command(*words.replace("f.yaml", "shop/flow.yaml").split(), "--json").object for words in (old, WORDS[old]))
    assert (before.pop("command"), now.pop("command")) == ("show", "config resolved")
    assert before == now


def called(*words: str) -> Result:
    return CliRunner().invoke(scribengin, list(words), env={"SCRIBENGIN_REGISTRY": None}, standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("dead list no.yaml", '"dead list" is now "dead-letter list"'),
        ("package no", '"package" is now "package create"'),
        ("package show no", '"package show" is now "package inspect"'),
        ("decommission h --undo --master http://127.0.0.1:1", '"decommission --undo" is now "node undrain"'),
        ("nodes h --master http://127.0.0.1:1", '"nodes NAME" is now "node describe NAME"'),
        ("groups set g m --back --master http://127.0.0.1:1", '"groups set --back" is now "group enable"'),
        ("limit f --off --master http://127.0.0.1:1", '"--off" is now "--unset"'),
        ("flow limit f --off --master http://127.0.0.1:1", '"--off" is now "--unset"'),
    ],
)
def test_an_old_spelling_is_told_once_on_stderr_and_not_to_programs(command: Command, words: str, said: str) -> None:
    ended = command(*words.split())
    assert ended.err.count("goes away in the next release") == 1
    assert ended.err.startswith(f"{said}; the old name goes away in the next release\n")
    assert "is now" not in ended.out
    for form in (["--json"], ["-o", "json"]) if words != "package no" else (["--json"],):  # whose -o names a file
        ended = command(*words.split(), *form)
        assert "goes away" not in ended.out + ended.err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("dead list no.yaml", "dead list"),
        ("dead-letter list no.yaml", "dead-letter list"),
        ("package no", "package make"),
        ("package create no", "package create"),
        ("package show no", "package show"),
        ("source skip no.yaml a", "source skip"),
        ("alerts f --master http://127.0.0.1:1", "alerts"),
        ("ops --master http://127.0.0.1:1", "ops list"),
        ("nodes h --master http://127.0.0.1:1", "nodes"),
        ("groups set g m --back --master http://127.0.0.1:1", "groups set"),
        ("show no.yaml", "show"),
        ("flow pause f --master http://127.0.0.1:1", "flow pause"),
        ("dead list", "dead list"),
        ("offsets show", "offsets show"),
    ],
)
def test_an_answer_has_the_name_that_was_called(command: Command, words: str, name: str) -> None:
    assert command(*words.split(), "--json").object["command"] == name
    if name != "package make":  # whose -o names a file
        assert command(*words.split(), "--output=json").object["command"] == name


def test_old_options_reach_the_new_ones() -> None:
    tried = set()
    for words, new in {
        "limit f --rows-per-s 5": "limit f --rows-per-second 5",
        "limit f --bytes-per-s=5MiB": "limit f --bytes-per-second=5MiB",
        "limit f --off": "limit f --unset",
        "quota set a=b --rate 5": "quota set a=b --rows-per-second 5",
        "quota set a=b --off rate --off=cores": "quota set a=b --unset rows-per-second --unset=cores",
        "quota set a=b --off=rate": "quota set a=b --unset=rows-per-second",
    }.items():
        given = []
        for line in (words, new):
            command, rest = leaf(line.split())
            path = " ".join(line.split()[: 1 if line.startswith("limit") else 2])
            context = click.Context(command, info_name=f"scribengin {path}")
            command.parse_args(context, rest)
            given.append(context.params)
        assert given[0] == given[1]
        tried |= {each for each in RENAMED_OPTIONS if words.startswith(each.command) and each.old in words}
    assert tried == set(RENAMED_OPTIONS)


def test_a_node_without_a_verb_runs_one_and_the_group_is_there_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCRIBENGIN_REGISTRY", raising=False)
    assert renamed(["node", "--registry", "zk://h:1"]) is not None
    assert renamed(["node"]) is None
    assert "list" in called("node", "--help").output
    monkeypatch.setenv("SCRIBENGIN_REGISTRY", "zk://h:1")
    old = renamed(["node"])
    assert old is not None
    assert old[1] == ["server", "node"]


def test_an_old_spelling_is_in_no_help() -> None:
    names = {each.old for each in RENAMED} - COMMANDS.keys()
    assert {"up", "dead", "nodes", "ops", "files", "services"} <= names
    told = called("--help", "--all").output
    assert not [name for name in names if f"\n  {name} " in told]


def test_a_flow_verb_is_the_command_of_the_same_name() -> None:
    verbs = [words.split()[1] for words, _ in leaves() if words.startswith("flow ")]
    assert len(verbs) > 10
    for verb in verbs:
        assert leaf(["flow", verb, "x"])[0] is leaf([verb, "x"])[0]


def test_a_refusal_in_an_old_spelling_is_as_before(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    @contextmanager
    def refused(_masters: Masters) -> Iterator[Recorder]:
        raise Refused("no", code="not-up")
        yield Recorder()

    monkeypatch.setattr(Masters, "client", refused)
    assert command("ops", "--json").object["problems"] == command("operation", "list", "--json").object["problems"]


@pytest.mark.parametrize("words", ["--help", "help --all", "node --help", "server --help", "flow --help"])
def test_the_help_of_the_tree_loads_no_command(words: str) -> None:
    code = "import sys; from scribengin.cli.main import main\ntry: main(sys.argv[1:])\nfinally: print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", code, *words.split()], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("Usage: scribengin")
    assert not [name for name in ended.stderr.split() if name.startswith(("scribengin.cli.commands.", "msgspec", "yaml", "pyspark"))]


def test_the_notice_says_what_to_type() -> None:
    assert Renamed("a b", "c").notice("c d", {}) == '"a b d" is now "c d"; the old name goes away in the next release'
    assert RENAMED[0].called("server dev") == "up"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--launcher", "standalone"], "--launcher standalone needs --spark-master spark://HOST:PORT"),
        (["--spark-web", "http://s1:8080"], "--spark-web needs --launcher standalone"),
        (["--launcher", "yarn"], "--launcher yarn needs --yarn-conf FOLDER, or HADOOP_CONF_DIR in the environment"),
        (
            ["--launcher", "yarn", "--yarn-conf", ".", "--yarn-mode", "client", "--yarn-python", "/usr/bin/python3"],
            "--yarn-python needs --yarn-mode cluster: in client mode executors use the path of this Python",
        ),
        (["--yarn-mode", "client"], "--yarn-mode needs --launcher yarn"),
        (["--launcher", "standalone", "--spark-master", "spark://s1:7077", "--yarn-queue", "etl"], "--yarn-queue needs --launcher yarn"),
    ],
)
def test_options_of_another_launcher_are_refused(words: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    ended = called("server", "node", "--registry", "zk://127.0.0.1:1/flows", "--insecure", *words)
    assert isinstance(ended.exception, click.UsageError)
    assert ended.exception.message == message
