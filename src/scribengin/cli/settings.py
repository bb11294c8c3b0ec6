"""System settings: how this machine runs flows. They never change what a flow means.

Precedence, lowest first: `scribengin.yaml`, environment variables (`SCRIBENGIN_…`), flags of the command. The file is the one that
SCRIBENGIN_CONFIG names, else `scribengin.yaml` in the working directory, else `~/.config/scribengin/scribengin.yaml`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem, did_you_mean
from scribengin.core.units import parse_duration_s
from scribengin.state.places import is_elsewhere, located

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import yaml

    from scribengin.local.contract import RunSettings

_PREFIX = "SCRIBENGIN_"
_OTHER_VARIABLES = frozenset(
    f"{_PREFIX}{name}"
    for name in ("CACHE", "CONFIG", "FAULT", "HOME", "IVY_SETTINGS", "LAUNCHED", "MASTER", "NODE", "REGISTRY", "REGISTRY_LOGIN")
)

Kind = Literal["path", "port", "flag", "text", "memory", "choice", "duration", "map"]


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of a setting, used for the file, the environment, the flag and `config show`. In the environment a `map` is KEY=VALUE
    pairs separated by commas."""

    name: str
    kind: Kind
    doc: str
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable, such as `SCRIBENGIN_SPARK_MASTER`."""
        return f"{_PREFIX}{self.name.upper()}"

    @property
    def flag(self) -> str:
        """The option of the command line, such as `--spark-master`."""
        return f"--{self.name.replace('_', '-')}"


SETTINGS = (
    Setting(
        "state", "path", "The state folder, hdfs://NAMENODE:PORT/FOLDER or s3://BUCKET/FOLDER; .scribengin beside the flow by default."
    ),
    Setting("metrics", "port", "Serve Prometheus metrics on this port of 127.0.0.1."),
    Setting("fail_fast", "flag", "Stop all queries if one fails.", False),
    Setting("strict", "flag", "Exit with status 1 if this run had dead letters.", False),
    Setting(
        "progress",
        "choice",
        "How to show progress on stderr. auto: live in a terminal, else plain lines.",
        "auto",
        ("auto", "live", "plain", "off"),
    ),
    Setting("spark_master", "text", "Spark master. Default: all cores of this machine.", ""),
    Setting("spark_memory", "memory", "Heap of the Spark driver, such as 2g. Default: that of Spark.", ""),
    Setting("spark_conf", "map", "A further Spark setting.", {}),
    Setting("warm", "flag", "Keep Spark ready for the next test, preview or deep plan. Default: on in a terminal, off in CI."),
    Setting("warm_idle", "duration", "How long a warm Spark stays without a command, such as 10m.", "10m"),
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A value and its origin: `default`, `scribengin.yaml:3`, `SCRIBENGIN_STATE` or `--state`."""

    value: Any
    origin: str


def read_settings(flags: Mapping[str, Any] | None = None) -> dict[str, Chosen]:
    """Returns every setting by name. `flags` has the values of the command line; None and an empty tuple mean that a flag was not given.

    Raises InputError with every problem of the file and the environment.
    """
    chosen = {setting.name: Chosen(setting.default, "default") for setting in SETTINGS}
    problems: list[Problem] = []
    for name, text, place, origin in (*_from_file(problems), *_from_environment(problems)):
        setting = next(setting for setting in SETTINGS if setting.name == name)
        try:
            chosen[name] = Chosen(_typed(setting, text), origin)
        except ValueError as error:
            problems.append(Problem("setting-value", place, f"{name}: {error}"))
    if problems:
        raise InputError(sorted(problems, key=lambda problem: problem.place))
    for name, value in (flags or {}).items():
        setting = next(setting for setting in SETTINGS if setting.name == name)
        if value is not None and value != ():
            chosen[name] = Chosen(dict(value) if setting.kind == "map" else value, setting.flag)
    return chosen


def run_settings(chosen: Mapping[str, Chosen]) -> RunSettings:
    """The settings of a run, as far as they are system settings."""
    from scribengin.local.contract import RunSettings

    values = {name: setting.value for name, setting in chosen.items()}
    return RunSettings(
        state=values["state"],
        metrics_port=values["metrics"],
        fail_fast=values["fail_fast"],
        strict=values["strict"],
        master=values["spark_master"],
        memory=values["spark_memory"],
        spark_conf=dict(values["spark_conf"]),
    )


def setting_flags(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the flags of these settings to a command, of all settings without `names`. The function receives each by its name; None if it was
    not given."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for setting in reversed([setting for setting in SETTINGS if not names or setting.name in names]):
            function = _option(setting)(function)
        return function

    return add


def _option(setting: Setting) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    match setting.kind:
        case "flag":
            return click.option(f"{setting.flag}/--no-{setting.flag[2:]}", setting.name, default=None, help=setting.doc)
        case "port":
            return click.option(setting.flag, setting.name, type=click.IntRange(0, 65535), metavar="PORT", help=setting.doc)
        case "path":
            return click.option(setting.flag, setting.name, type=StateRoot(), metavar="DIR", help=setting.doc)
        case "choice":
            return click.option(setting.flag, setting.name, type=click.Choice(setting.choices), help=setting.doc)
        case "map":
            return click.option(setting.flag, setting.name, type=_Pair(), multiple=True, help=f"{setting.doc} May be repeated.")
        case _:
            return click.option(setting.flag, setting.name, metavar="TEXT", help=setting.doc)


class StateRoot(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic since click 8.4
    """A local folder, or a folder in HDFS or an object store."""

    name = "DIR"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Parse with `located`."""
        try:
            return value if isinstance(value, Path) else located(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Pair(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic since click 8.4
    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        key, equals, text = str(value).partition("=")
        if not (key and equals):
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key, text


def _typed(setting: Setting, given: str | dict[str, str]) -> Any:
    """Parse a value from the file or the environment. Raises ValueError that describes what was found."""
    if setting.kind == "map":
        return given if isinstance(given, dict) else dict(_pair(part) for part in given.split(",") if part.strip())
    if isinstance(given, dict):
        raise ValueError("found a mapping; expected one value")
    match setting.kind:
        case "path":
            return located(given)
        case "port":
            if not (given.isdigit() and int(given) <= 65535):
                raise ValueError(f'"{given}" is not a valid port; expected a number from 0 to 65535')
            return int(given)
        case "flag":
            if given.lower() not in ("true", "false", "1", "0"):
                raise ValueError(f'"{given}" is not a valid value; expected true or false')
            return given.lower() in ("true", "1")
        case "duration":
            parse_duration_s(given)
        case "choice":
            if given not in setting.choices:
                raise ValueError(f'"{given}" is not one of {", ".join(setting.choices)}')
    return given


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.strip().partition("=")
    if not (key and equals):
        raise ValueError(f'"{text}" is not KEY=VALUE')
    return key, value


_Given = tuple[str, Any, Place, str]
"""name, value, place for problems, origin for people"""


def _from_environment(problems: list[Problem]) -> Iterator[_Given]:
    known = {setting.variable: setting.name for setting in SETTINGS}
    for variable, name in known.items():
        if variable in os.environ:
            yield name, os.environ[variable], Place(variable), variable
    for variable in sorted(os.environ):
        # other variables with this prefix may belong to tests or other releases: only one that looks like a misspelled setting is reported
        if variable.startswith(_PREFIX) and variable not in known and variable not in _OTHER_VARIABLES:
            near = did_you_mean(variable.removeprefix(_PREFIX), [name.upper() for name in known.values()])
            if near:
                near = near.replace('"', f'"{_PREFIX}', 1)
                problems.append(Problem("setting-unknown", Place(variable), f"{variable} is not a setting of Scribengin", near))


def settings_file() -> Path | None:
    """The settings file, or None if there is none. Raises InputError if SCRIBENGIN_CONFIG names a missing file."""
    if named := os.environ.get("SCRIBENGIN_CONFIG"):
        if not Path(named).is_file():
            raise InputError([Problem("setting-file", Place(named), "SCRIBENGIN_CONFIG names this file, which does not exist")])
        return Path(named)
    for path in (Path("scribengin.yaml"), Path("~/.config/scribengin/scribengin.yaml").expanduser()):
        if path.is_file():
            return path
    return None


def _from_file(problems: list[Problem]) -> Iterator[_Given]:
    path = settings_file()
    if path is None:
        return
    import yaml

    try:
        root = yaml.compose(path.read_text(), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = Place(str(path), mark.line + 1, mark.column + 1) if mark else Place(str(path))
        problems.append(Problem("yaml", place, str(error.problem or error)))
        return
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        problems.append(Problem("setting-file", _place(path, root), "write one `name: value` a line"))
        return
    known = [setting.name for setting in SETTINGS]
    for key, value in root.value:
        if key.value not in known:
            remedy = did_you_mean(str(key.value), known) or f"they are {', '.join(known)}"
            problems.append(Problem("setting-unknown", _place(path, key), f'there is no setting "{key.value}"', remedy))
        else:
            given = {str(k.value): str(v.value) for k, v in value.value} if isinstance(value, yaml.MappingNode) else str(value.value)
            if key.value == "state" and isinstance(given, str) and not is_elsewhere(given):
                given = str(path.parent / Path(given).expanduser())  # a relative path is relative to the settings file
            yield key.value, given, _place(path, value), f"{path}:{key.start_mark.line + 1}"


def _place(path: Path, node: yaml.Node) -> Place:
    return Place(str(path), node.start_mark.line + 1, node.start_mark.column + 1)
