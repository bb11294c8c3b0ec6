"""The command tree of `scribengin`: names, descriptions for the help and the place of the code; and the spellings of the previous
release."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HELP = ("-h", "--help")


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command, or a group that is one module. `code` is `module:attribute` in cli/commands, which is loaded when the command is
    called."""

    line: str
    code: str = ""
    hidden: bool = False
    """only shown by `scribengin help --all`"""


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """A group of commands about one kind of object. `help` is the help text of the group itself."""

    line: str
    help: str
    below: Mapping[str, CommandEntry]
    hidden: bool = False


_OF_FLOWS = {
    "list": CommandEntry("List submitted flows and their state."),
    "status": CommandEntry("Show progress of each tier, backlog, and what is acknowledged."),
    "describe": CommandEntry("Show everything that the registry records about a flow."),
    "logs": CommandEntry("Show the output of a flow's workers."),
    "events": CommandEntry("Show the history of a flow: state changes, versions, operations."),
    "top": CommandEntry("Show live rates, backlog and bottlenecks of all flows."),
    "pause": CommandEntry("Pause flows; workers stay up."),
    "resume": CommandEntry("Resume paused or stopped flows, or retry failed ones."),
    "drain": CommandEntry("Process the data available now through all tiers, then stop."),
    "stop": CommandEntry("Stop flows after the current Batches."),
    "scale": CommandEntry("Change cores, memory, workers or executors of a flow or tier."),
    "limit": CommandEntry("Show or change rate limits of a running flow."),
}
_VERSIONS = {
    "history": CommandEntry("List the versions of a flow."),
    "rollback": CommandEntry("Return to an earlier version of a flow."),
    "delete": CommandEntry("Delete stopped flows; outputs and state are kept."),
}

SECTIONS: Mapping[str, Mapping[str, CommandEntry | CommandGroup]] = {
    "Develop": {
        "init": CommandEntry("Create a folder with a working flow and its data."),
        "validate": CommandEntry("Check flow files; needs no Java or Spark."),
        "plan": CommandEntry("Show what would run, its guarantees, and what it would change."),
        "preview": CommandEntry("Show what a flow makes of sample records, step by step."),
        "run": CommandEntry("Run flows on this machine, until Ctrl-C or (--once) until all data is read."),
        "test": CommandEntry("Run the tests of flow files, in one Spark session."),
        "audit": CommandEntry("Verify outputs, dead letters and the ledger by reading them again."),
        "graph": CommandEntry("Show a flow or a workflow as text, Mermaid or SVG."),
        "infer": CommandEntry("Propose the schema of a source from its files."),
        "fmt": CommandEntry("Format flow files."),
        "explain": CommandEntry("Explain an error code: its meaning and remedy."),
    },
    "Deploy": {
        "apply": CommandEntry("Submit flows, or their next versions, to the control plane."),
        **_VERSIONS,
        "package": CommandGroup(
            "Create or inspect one file of flows and their code.",
            """Packages: one file with the flows of a folder and their code.

            A package contains the flow files of the folder, the .py files below it, the schema files that the flows name, requirements.lock
            and requirements.txt. `scribengin apply` submits it.

            \b
            Example:
              scribengin package create shop --file shop.flows
            """,
            {
                "create": CommandEntry("Create a package of the flows in a folder.", "package:create"),
                "inspect": CommandEntry("Verify a package and list its contents.", "package:inspect"),
            },
        ),
    },
    "Operate": {
        **_OF_FLOWS,
        "flow": CommandGroup(
            "Operate submitted flows: the same verbs, as flow VERB.",
            """Operate submitted flows. Each verb is also a command of its own: `flow pause` is `pause`.

            \b
            Example:
              scribengin flow list
            """,
            {**_OF_FLOWS, **_VERSIONS},
        ),
        "alerts": CommandGroup(
            "List the alerts of a flow, or send a test.",
            """Alerts of submitted flows, which the flow file declares under `alerts`.

            \b
            Example:
              scribengin alerts list orders
            """,
            {
                "list": CommandEntry("List the alerts of a flow, their states and values.", "alerts:list_"),
                "test": CommandEntry("Send a test through the targets of alerts.", "alerts:test"),
            },
        ),
        "operation": CommandGroup(
            "List or cancel operations of several steps.",
            """Operations of several steps: rewind, set positions, a new checkpoint; also over workflows.

            A flow has one operation at a time; the next one waits. If the leading master stops, the next one continues the operation.

            \b
            Example:
              scribengin operation list orders
            """,
            {
                "list": CommandEntry("List operations, newest first: step, since when, error.", "ops:list_"),
                "cancel": CommandEntry("Cancel an operation that has not changed anything yet.", "ops:cancel"),
            },
        ),
    },
    "Data": {
        "trace": CommandEntry("Trace a record through tiers, Batches and sinks."),
        "batch": CommandGroup(
            "List the last Batches of a flow, or show one of them.",
            """Decided Batches of a flow.

            FLOW is a flow file, or the name of a submitted flow.

            \b
            Example:
              scribengin batch list flow.yaml
            """,
            {
                "list": CommandEntry("List the last Batches: rows, dead letters, whether published.", "batch:list_"),
                "show": CommandEntry("Show one Batch: phases, rows at each node, receipts.", "batch:show"),
            },
        ),
        "dead-letter": CommandEntry("List, show, repair, replay or delete dead letters.", "dead:command"),
        "offsets": CommandGroup(
            "Show, set, skip or rewind positions in sources.",
            """Positions of a flow in its sources. A position counts the committed entries of a source's log.

            FLOW is a flow file, or the name of a submitted flow.

            \b
            Example:
              scribengin offsets show flow.yaml
            """,
            {
                "show": CommandEntry("Show the position of every source in every query.", "offsets:show"),
                "set": CommandEntry("Set the position of a source.", "offsets:set_"),
                "skip": CommandEntry("Skip a file that is assigned but missing or changed.", "source:skip"),
                "rewind": CommandEntry("Read again what a flow has read since a time or a Batch.", "rewind:command"),
            },
        ),
        "reset": CommandEntry("Delete a flow's state, so that it reads all sources from the start."),
        "maintain": CommandEntry("Merge, complete and clean up the places that sinks write to."),
        "object": CommandEntry("List committed objects of object stores.", "files:command"),
        "summary": CommandEntry("Show the tables of summary sinks.", hidden=True),
    },
    "Cluster": {
        "server": CommandGroup(
            "Run a control plane, a master or a node, until Ctrl-C.",
            """Run servers of the control plane in this terminal, until Ctrl-C or SIGTERM.

            \b
            Examples:
              scribengin server dev
              scribengin server master --registry zk://z1:2181/flows --login-file login
              scribengin server node --registry zk://z1:2181/flows --login-file login
              scribengin server gateway --registry zk://z1:2181/flows --login-file login
            """,
            {
                "dev": CommandEntry("Run a control plane on this machine: a registry, a master and workers.", "up:command"),
                "master": CommandEntry("Run a master of the control plane.", "master:command"),
                "node": CommandEntry("Run a node, on which masters start workers.", "node:command"),
                "gateway": CommandEntry("Run a gateway on a registry, to which agents send records.", "gateway:command"),
            },
        ),
        "node": CommandGroup(
            "List, drain or remove nodes; bind tiers to nodes.",
            """Nodes: hosts on which masters start workers. `scribengin server node` runs one.

            \b
            Examples:
              scribengin node list
              scribengin node drain host2 --wait
            """,
            {
                "list": CommandEntry("List nodes and their workers.", "nodes:list_"),
                "describe": CommandEntry("Show all that a node reports.", "nodes:describe"),
                "map": CommandEntry("Bind a tier to a node.", "map:command"),
                "unmap": CommandEntry("Remove the binding of a tier to a node.", "unmap:command"),
                "start-tier": CommandEntry("Bind a tier to a node and start its flow (map, then resume).", "spawn:command"),
                "drain": CommandEntry("Move the workers of a node to other nodes.", "decommission:drain"),
                "undrain": CommandEntry("Allow workers on a drained node again.", "decommission:undrain"),
                "remove": CommandEntry("Remove a node whose machine no longer exists.", "decommission:remove"),
            },
        ),
        "agent": CommandGroup(
            "Run an agent, which collects records on a host; list, drain or remove agents.",
            """Agents: light processes that read files, commands and sockets of their hosts, and send the records to gateways.

            \b
            Examples:
              scribengin agent run --gateway https://gateway1:7443 --group web --token-file token
              scribengin agent status
              scribengin agent list
            """,
            {
                "run": CommandEntry("Run an agent on this host.", "edge:agent_run"),
                "status": CommandEntry("Show the state of the agent of a folder on this host.", "edge:agent_status"),
                "list": CommandEntry("List agents: state, backlog, last report.", "agents:list_"),
                "describe": CommandEntry("Show the tiers, lanes and gateways of an agent.", "agents:describe"),
                "map": CommandEntry("Run a tier at an agent of another group too.", "agents:map_"),
                "start-tier": CommandEntry("Bind a tier to an agent and start its flow (map, then resume).", "agents:start_tier"),
                "unmap": CommandEntry("Remove the binding of a tier to an agent.", "agents:unmap"),
                "drain": CommandEntry("Stop the inputs of an agent; it hands over what it has read.", "agents:drain"),
                "undrain": CommandEntry("Allow a drained agent to read again.", "agents:undrain"),
                "remove": CommandEntry("Remove an agent whose host no longer exists.", "agents:remove"),
            },
        ),
        "gateway": CommandGroup(
            "Run a gateway, which takes records from agents; list gateways.",
            """Gateways: they take records from agents and other clients over HTTPS, and store them in the channels of flows.

            \b
            Example:
              scribengin gateway run --flow flow.yaml
            """,
            {
                "run": CommandEntry("Run a gateway.", "edge:gateway_run"),
                "list": CommandEntry("List gateways: addresses, costs, agents.", "agents:gateways"),
                "set-chain": CommandEntry("Set the costs or the order of the gateways of a group.", "agents:set_chain"),
            },
        ),
        "group": CommandGroup(
            "List, show, disable or enable members of groups.",
            """Groups of equivalent places: a Batch goes to the available member with the lowest cost; members of equal cost share the load.

            \b
            Example:
              scribengin group show db
            """,
            {
                "list": CommandEntry("List groups and their unhealthy members.", "groups:list_"),
                "show": CommandEntry("Show the members of a group, their costs and state.", "groups:show"),
                "disable": CommandEntry("Stop routing new Batches to a member.", "groups:disable"),
                "enable": CommandEntry("Route Batches to a member again.", "groups:enable"),
                "set-cost": CommandEntry("Change the cost of a member.", "groups:set_cost"),
            },
        ),
        "quota": CommandEntry("Set shared resource quotas for flows with a label."),
        "token": CommandEntry("Create, list and remove tokens for the API."),
        "peer": CommandEntry("Connect flows with flows of another control plane."),
        "recover": CommandEntry("After an outage, check that every flow is in its desired state."),
        "worker": CommandEntry("Show a worker.", hidden=True),
    },
    "Tools": {
        "config": CommandGroup(
            "Show settings, the schema of flow files, or a flow in full.",
            """Settings of this machine, the schema of flow files, and flows with all defaults.

            \b
            Example:
              scribengin config show
            """,
            {
                "show": CommandEntry("List all settings with their values and origins.", "config:show"),
                "schema": CommandEntry("Print the JSON Schema of flow files, for editors.", "schema:command"),
                "resolved": CommandEntry("Print a flow with every default and replaced variables.", "show:resolved"),
            },
        ),
        "doctor": CommandEntry("Check this machine or a cluster: versions, memory, folders, rights, ports."),
        "version": CommandEntry("Print the versions of Scribengin and of what it runs on."),
        "completion": CommandEntry("Print the completion script for a shell.", hidden=True),
        "shell": CommandEntry("Run commands with completion and history, or a script of them.", hidden=True),
        "warm": CommandEntry("List or stop warm Spark sessions.", hidden=True),
        "dev-services": CommandEntry("Start, stop and list servers for trying and testing.", "services:command", hidden=True),
        "dev-jars": CommandEntry("Download the jars that PySpark does not include.", "jars:command", hidden=True),
    },
}
"""title in the help → name → command or group"""
COMMANDS: Mapping[str, CommandEntry | CommandGroup] = {name: each for section in SECTIONS.values() for name, each in section.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Renamed:
    """A spelling of the previous release, which still works in this release. The help does not list it.

    `when` is given the words after the old words and decides whether the spelling applies. `answers` is the command's name in `--json` if
    it is not the old words. `options` maps old option names to those of the new spelling. `kept` is the code of the old command if its form
    differs from the new commands; `by` then maps a parameter of the old command to the text for the notice and the new spelling.
    """

    old: str
    new: str
    when: Callable[[Sequence[str]], bool] = lambda _rest: True
    answers: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    kept: str = ""
    by: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def now(self, rest: Sequence[str]) -> list[str]:
        """The current words for the old words followed by `rest`. A command that is kept has the old words as its name."""
        return [self.old, *rest] if self.kept else [*self.new.split(), *(_with_new_name(word, self.options) for word in rest)]

    def called(self, path: str) -> str:
        """The command's name in `--json`. `path` has the words of the command that is called."""
        return path if self.kept else self.answers or self.old + path.removeprefix(self.new)

    def notice(self, path: str, given: Mapping[str, Any]) -> str:
        """The notice about the old spelling. `given` has the parameters of the call."""
        if not self.kept:
            return moved(self.old + path.removeprefix(self.new), path)
        shown, new = next((by for name, by in self.by.items() if given.get(name) not in (None, False)), ("", self.new))
        return moved(f"{self.old} {shown}".strip(), new)


def moved(old: str, new: str) -> str:
    """The line on stderr about an old spelling.

    >>> moved("dead list", "dead-letter list")
    '"dead list" is now "dead-letter list"; the old name goes away in the next release'
    """
    return f'"{old}" is now "{new}"; the old name goes away in the next release'


def _with_new_name(word: str, options: Mapping[str, str]) -> str:
    """The word with a new option name; also handles `--old=VALUE`."""
    name, equals, value = word.partition("=")
    return f"{options[name]}{equals}{value}" if name in options else word


def _names_no_command(of: str) -> Callable[[Sequence[str]], bool]:
    """Returns a function that is True if the words after the old words are not a command of the group, but arguments of the old command."""
    group = COMMANDS[of]
    assert isinstance(group, CommandGroup)
    return lambda rest: not rest or rest[0] not in (*group.below, *HELP)


def _runs_a_node(rest: Sequence[str]) -> bool:
    """True for the old `node` with options, or without arguments if the environment has the registry's address."""
    return rest[0].startswith("-") and rest[0] not in HELP if rest else bool(os.environ.get("SCRIBENGIN_REGISTRY"))


RENAMED = (
    Renamed("up", "server dev"),
    Renamed("master", "server master"),
    Renamed("node", "server node", when=_runs_a_node),
    Renamed("nodes", "node list", kept="nodes:command", by={"node": ("NAME", "node describe NAME")}),
    Renamed("map", "node map"),
    Renamed("unmap", "node unmap"),
    Renamed("spawn", "node start-tier"),
    Renamed(
        "decommission",
        "node drain",
        kept="decommission:command",
        by={"undo": ("--undo", "node undrain"), "forget": ("--forget", "node remove")},
    ),
    Renamed("source", "offsets"),
    Renamed("rewind", "offsets rewind"),
    Renamed(
        "groups set",
        "group set-cost",
        kept="groups:set_",
        by={"out": ("--out", "group disable"), "back": ("--back", "group enable"), "cost": ("--cost", "group set-cost")},
    ),
    Renamed("groups", "group"),
    Renamed("ops", "operation list", when=_names_no_command("operation"), answers="ops list"),
    Renamed("ops", "operation"),
    Renamed("alerts", "alerts list", when=lambda rest: bool(rest) and _names_no_command("alerts")(rest), answers="alerts"),
    Renamed("dead", "dead-letter"),
    Renamed("files", "object"),
    Renamed("package show", "package inspect"),
    Renamed("package make", "package create", answers="package make", options={"-o": "--file", "--output": "--file"}),
    Renamed(
        "package",
        "package create",
        when=lambda rest: bool(rest) and _names_no_command("package")(rest),
        answers="package make",
        options={"-o": "--file", "--output": "--file"},
    ),
    Renamed("show", "config resolved --as-written", kept="show:command", by={"resolved": ("--resolved", "config resolved")}),
    Renamed("schema", "config schema"),
    Renamed("services", "dev-services"),
    Renamed("jars", "dev-jars"),
)
"""the first match counts"""


@dataclass(frozen=True, slots=True, eq=False)
class RenamedOption:
    """An option's spelling of the previous release. `values` maps old values to new ones if they were renamed too."""

    command: str
    old: str
    new: str
    values: Mapping[str, str] = field(default_factory=dict)


RENAMED_OPTIONS = (
    RenamedOption("limit", "--rows-per-s", "--rows-per-second"),
    RenamedOption("limit", "--bytes-per-s", "--bytes-per-second"),
    RenamedOption("limit", "--off", "--unset"),
    RenamedOption("quota set", "--rate", "--rows-per-second"),
    RenamedOption("quota set", "--off", "--unset", {"rate": "rows-per-second"}),
)


def renamed(words: Sequence[str]) -> tuple[Renamed, list[str]] | None:
    """Returns the old spelling that a command line uses and the current words; None if it uses none.

    >>> renamed(["dead", "list", "flow.yaml"])[1]
    ['dead-letter', 'list', 'flow.yaml']
    >>> renamed(["ops", "orders"])[1]
    ['operation', 'list', 'orders']
    >>> renamed(["node", "list"]) is None
    True
    """
    for each in RENAMED:
        old = each.old.split()
        if list(words[: len(old)]) == old and each.when(words[len(old) :]):
            return each, each.now(words[len(old) :])
    return None


def with_new_options(command: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Replace old option names in the words after a command. Returns the words and a notice for each old name.

    >>> with_new_options("limit", ["orders", "--off"])
    (['orders', '--unset'], ['"--off" is now "--unset"; the old name goes away in the next release'])
    """
    mine = {each.old: each for each in RENAMED_OPTIONS if each.command == command}
    found, notices = list[str](), list[str]()
    values: Mapping[str, str] = {}
    for word in words if mine else ():
        name, equals, value = word.partition("=")
        if option := mine.get(name):
            notices.append(moved(option.old, option.new))
            found.append(f"{option.new}{equals}{option.values.get(value, value)}")
        else:
            found.append(values.get(word, word))
        values = option.values if option and not equals else {}
    return found if mine else list(words), list(dict.fromkeys(notices))


def leaves(of: Mapping[str, CommandEntry | CommandGroup] = COMMANDS, *, above: str = "") -> Iterator[tuple[str, CommandEntry]]:
    """Yields (words, command) of all commands, in the order of the help. A group that is one module counts as one command."""
    for name, each in of.items():
        if isinstance(each, CommandGroup):
            yield from leaves(each.below, above=f"{above}{name} ")
        else:
            yield f"{above}{name}", each


def words_of(given: Sequence[str]) -> tuple[str, str]:
    """Returns the words of the command that a command line calls and its name in `--json`, as far as they are known before the command's
    code is loaded."""
    given = list(given[next((number for number, word in enumerate(given) if not word.startswith("-")), len(given)) :])
    old, now = renamed(given) or (None, given)
    if old is not None and old.kept:
        return old.new, old.old
    first = COMMANDS.get(now[0]) if now else None
    count = 2 if isinstance(first, CommandGroup) else 1
    path = " ".join(now[:count]) if first is not None else ""
    return path, old.called(path) if old is not None else path
