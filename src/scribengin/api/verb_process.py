"""The process that reads packages and states for one request, started by `api.planning`: a person's modules are executed here, and not in a
master.

stdin: a `VerbQuestion` as JSON. stdout: a `ChildAnswer` as JSON. It has copies of the records that it needs, and no access to the registry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping  # noqa: TC003  msgspec looks at it
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.api.child import ChildAnswer, look_with, serve_one, unknown
from scribengin.client.models import Submit  # noqa: TC001  msgspec looks at it
from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from scribengin.core.problems import Problem
    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry


@dataclass(frozen=True, slots=True)
class VerbQuestion:
    """What to read. `records`: path → value, of the flows in question; `state`: the root folder of states of new flows."""

    what: str
    packages: str
    state: str
    records: Mapping[str, Mapping[str, Any]]
    limit_s: int
    flow: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    submits: tuple[Submit, ...] = ()


def run_verb(task: VerbQuestion) -> ChildAnswer:
    """Perform the request."""
    from scribengin.packages.store import PackageStore

    return look_with(task.records, lambda registry: _found(task, registry, PackageStore(Path(task.packages))))


def _found(task: VerbQuestion, registry: Registry, packages: PackageStore) -> Any:
    from scribengin.control.limits import find_limited
    from scribengin.control.offsets import plan_offsets, plan_rewind, read_offsets
    from scribengin.control.scale import plan_spread

    said = dict(task.arguments)
    match task.what:
        case "topology":
            return _topology(task, registry, packages)
        case "pack":
            return _packed(packages, task.flow, said["text"], said["base"])
        case "rollback":
            from scribengin.control.topology import plan_rollback

            back = plan_rollback(registry, task.flow, said["version"], packages=packages, only=said["only"])
            return msgspec.to_builtins(back)
        case "offsets":
            return msgspec.to_builtins(read_offsets(registry, packages, task.flow))
        case "set":
            going = plan_offsets(registry, packages, task.flow, said["source"], said["position"], said["query"])
        case "rewind":
            at = None if said["to_time"] is None else datetime.fromisoformat(said["to_time"])
            going = plan_rewind(registry, packages, task.flow, at=at, batch=said["to_batch"], query=said["query"])
        case "limit":
            return find_limited(registry, packages, task.flow, said["target"])
        case "spread":
            operation = plan_spread(registry, packages, task.flow, said["tiers"], partitions=said["partitions"])
            return None if operation is None else msgspec.to_builtins(operation)
        case _:
            raise unknown(task.what)
    return {**going.as_json(), "operation": msgspec.to_builtins(going.operation)}


def _topology(task: VerbQuestion, registry: Registry, packages: PackageStore) -> Any:
    from scribengin.control.submission import submission_of
    from scribengin.control.topology import plan_topology
    from scribengin.core.errors import InputError
    from scribengin.local.prepare import prepare
    from scribengin.state.places import located

    submissions, problems = [], list[Any]()
    for submit in task.submits:
        have = [flow.path for flow in packages.read(submit.package).manifest.flows]
        if submit.path not in have:
            raise Refused(f'the package has no flow file "{submit.path}"', remedy=f"it has {', '.join(sorted(have))}", code="flow-path")
        try:
            prepared = prepare(packages.get(submit.package) / submit.path, state=located(task.state), base=Path(submit.base))
        except InputError as error:
            problems += error.problems
            continue
        submissions.append(submission_of(prepared.plan, submit.package, submit.path, submit.base))
    if problems:
        raise InputError(problems)
    plan = plan_topology(registry, submissions, packages=packages, state=lambda _: task.state)
    return {
        "plan": msgspec.to_builtins(plan),
        "submissions": msgspec.to_builtins(submissions),
    }


_BESIDE = frozenset({"python-module-missing", "package-file", "package-link"})
"""codes of problems about files that a flow file names"""


def _packed(packages: PackageStore, flow: str, text: str, base: str) -> dict[str, str]:
    """Make a package of a flow file's text alone: its id, the file's path inside, and the folder where its relative paths start."""
    import os
    from tempfile import TemporaryDirectory

    from scribengin.core.errors import InputError
    from scribengin.packages.make import make_package
    from scribengin.plan.validate import validate_file

    with TemporaryDirectory() as folder:
        path = Path(folder, f"{flow}.yaml")
        path.write_text(text, encoding="utf-8")
        try:
            made = make_package(path.parent, os.environ, asked=path.name)
        except InputError as error:
            problems = error.problems
            if any(problem.code == "package-empty" for problem in problems):  # it has neither sources nor sinks that can be read
                problems = tuple(validate_file(path, os.environ, execute=True)[1]) or problems
            raise InputError([_alone(problem, flow, folder) for problem in problems]) from None
    (packed,) = made.package.manifest.flows
    if packed.name != flow:
        raise Refused(
            f'is the text of flow "{packed.name}"', remedy=f"write it to flows/{packed.name}/file, or name it {flow}", code="flow-name"
        )
    relative = made.relative[flow]
    if not base and relative is None:
        raise Refused(
            "has values that are resolved where the flow runs, so it is not known whether its paths are relative",
            remedy='give the folder where relative paths start: {"text": "…", "base": "/folder"}',
            code="flow-file-base",
        )
    if not base and relative:
        raise Refused(
            f"has relative paths, but no folder where they start: {', '.join(map(str, relative))}",
            remedy='write absolute paths, or {"text": "…", "base": "/folder"}',
            code="flow-file-base",
        )
    packages.put([made.package.data], made.package.id)
    return {"package": made.package.id, "path": packed.path, "base": base or "/"}


def _alone(problem: Problem, flow: str, folder: str) -> Problem:
    """The text comes without other files, and is in `folder` only for a moment: files that it names cannot be there."""
    message = problem.message.replace(f" in {folder} or on", " on").replace(folder, "the registry")
    if problem.code not in _BESIDE:
        return dataclasses.replace(problem, message=message)
    said = f"{message}; a text in the registry comes without the code and files beside it"
    remedy = f"submit it with its folder: scribengin apply {flow}.yaml"
    return dataclasses.replace(problem, message=said, remedy=remedy)


if __name__ == "__main__":
    serve_one(VerbQuestion, run_verb)
