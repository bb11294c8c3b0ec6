"""The page about the tree, `docs/registry.md`, made from its declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.registry.contract import COMMIT_BYTES, RECORD_BYTES
from scribengin.registry.records import DAMAGED
from scribengin.registry.tree import OWN_FOLDERS, TREE, BranchOwner, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scribengin.registry.records import Record
    from scribengin.registry.tree import Branch

_HEAD = f"""\
# The registry

What masters, workers and people share: small records in ZooKeeper, below one path (`zk://a:2181,b:2181/path`; `/scribengin` where none is
given). The tree is an interface: other programs may read it, and people may write what the table gives to them, with ZooKeeper's own shell.
[Flows that are managed](control.md) says what uses it today. This page is made from `registry/tree.py`; what it says of records, rights and
bounds is tested on a real server.

## Records

- A record is one JSON object of at most {RECORD_BYTES:,} bytes; one commit writes at most {COMMIT_BYTES:,}. A folder is an empty record, no
  bytes at all.
- `format` is a record's number, 1 where it is absent. A program reads what it can of a newer one, and does not replace it.
- Who replaces a record keeps the keys that he does not know. Children that are not in the table are left alone.
- What is not valid JSON, or does not fit, is never fatal, and no other flow knows of it. Of a record of people (`desired`, `limits`,
  `quotas`, `groups`, a binding) it is refused, and stays where it is; [by hand](#by-hand) says what goes on meanwhile. A record of masters
  or workers is set aside: moved to `{DAMAGED}/NAME@REVISION` beside it, with `why` and its first 64 KiB, and made anew from what is seen. A
  version (`spec/N`) nobody can make anew: the flow is left as it is, `degraded`, and its workers go on. `status NAME` shows all of it.
- A name that begins with a dot is not that of a record.

## Who writes what

An *ephemeral* record goes with the session that made it.
"""

_RIGHTS = """\
## Rights

The login that makes the root has all rights there, and a record gets the rights of the one above it. So all of the tree is the masters';
a worker's own login has all rights below the tier's folders, and a host's below the host's, and none elsewhere but what the root gives it:

"""

_TAIL = f"""\
`tokens` are written by masters, asked by an admin, and by `scribengin token` with the masters' login. What is kept opens nothing: it
is what scrypt makes of 256 random bits; names, roles and labels are for everybody to read who can read the tree.

What a worker or a host makes in its folders is the masters' to write, too. A worker sees the hash of the masters' password in the rights of
its own folders: take a long random one. A root that everybody can write to is refused, unless that is said to be meant.

## Terms

The right to lead, or to run a tier, is an ephemeral record (`leader`, `lease`). Whoever takes it replaces the record `….term` beside it in
the same step. Each write under a right checks both in its own transaction: the ephemeral record is there, and `….term` has the version that
its holder gave it. So a holder that slept past its session changes nothing. Never delete a `….term`: its version would begin anew.

## By hand

With the jars of PySpark, for example, `java -cp 'JARS/*' org.apache.zookeeper.ZooKeeperMain -server HOST:2181`; then

```
addauth digest USER:PASSWORD
get -s /scribengin/limits/tweets
set -v 3 /scribengin/limits/tweets '{{"format":1,"rows_per_s":500}}'
```

`-v` is the `dataVersion` that `get -s` shows: with it nothing that changed meanwhile is overwritten.

What can be is taken up as if a verb had said it. What cannot be is told beside it: `refused` in the flow's `status` says of which record
which `version`, `why`, and the `remedy`, and is gone when it is mended; `list`, `status` and `describe` show it.

- `desired` is not valid JSON, lacks a key, names a state or a version that is not there, is empty, or was removed: the last
  valid desired state stays in force, and any verb writes it anew.
- `file` is no text of a flow that can run, or the version that it would be is refused: the flow goes on as it is; see
  [a flow as text](#a-flow-as-text).
- A tier is bound to two nodes: the one that was written first has it.
- A tier is bound to a node that never registered, or a flow's binding names a tier that it has not: as if it were not written. A node that
  registers has what is bound to it.
- `limits` say nothing: a worker that runs goes on with those before. A number in them that is not above 0, or an unknown key, limits
  nothing.
- `workers/…` names a tier that the flow has not, a number below 1 or above 16, or more than one for a tier whose steps keep state: that
  tier has as many workers as its version says, and the others of the record as many as it says. With a word other than `each` the record
  says nothing, of any tier.
- The `group` of a logical node is no group of hosts of the flow: the tier runs on the one that its version says. One that is holds until a
  version names another group than the version before.
- A quota says nothing, or a number in it is not above 0: flows with its label that have been started go on, and start again where they were
  lost; no other one starts. Their parts of its rows a second stay as they were.
- `groups/…` say nothing: a worker that runs goes on with what they said before, and the master's log says so. Members that a flow does not
  have, and costs that are not above 0, say nothing; where all that a flow may use are `out`, there none is (`groups show` tells it).

## A flow as text

A flow can be submitted without any program of Scribengin: write the text of its flow file to `flows/NAME/file`, where NAME is the flow's.
The record is the text as it is, or JSON that has it, each of at most {RECORD_BYTES:,} bytes:

```
create /scribengin/flows/tweets ""
create /scribengin/flows/tweets/file '{{"text": "version: 1\\nname: tweets\\n…", "base": "/data/tweets"}}'
```

In ZooKeeper's shell a text of several lines is one word of the command line, `zkCli.sh -server HOST:2181 set /scribengin/flows/tweets/file
"$(cat tweets.yaml)"`, where the registry has no login; after `addauth` it takes the JSON, in one line: `jq -Rs '{{text: .}}' tweets.yaml`
makes it, and a `'` in it is written `\\u0027`. Other clients write the bytes of the file;
`PUT /v1/registry/flows/NAME/file` of the API takes the JSON.

- The leading master takes a text up once for each time that it is written, as `apply` does: it validates and plans it, and makes a package
  and a version of it, `by` `flows/NAME/file`. The same commit writes `taken`, which says as which version: a master that is killed loses no
  text and takes none twice.
- `base`: where relative paths start; where there is none, as those of the version that is wanted, and in a new flow all paths are absolute.
  `state`: what is wanted from then on, `running` where there is none. `accept`: `again` or `lost`, as of `apply --accept`.
- A verb that comes later (`apply`, `rollback`, `stop`) holds until the text is written again; the same text counts as written again, too.
  To remove `file` changes nothing; `delete` removes it with the flow.
- What cannot be taken is refused beside it, with the lines: `refused` in the flow's `status`, and `taken`. What runs goes on. A text that
  is refused is not looked at again until it is written; where what stands against it passes, such as an operation that is under way, it is
  tried again by itself. A flow that has no version yet stands in `list` as `created`.
- The text comes alone. A flow with Python or schema files beside it is refused: `scribengin apply` takes its folder along. A secret stays a
  reference, `${{secret:env/NAME}}`.

## Keys

"""


_WRITTEN_OVER = {
    Writer.MASTER: "written over when the leader writes it next",
    Writer.CANDIDATE: "written over when a master writes it next",
    Writer.WORKER: "for reading only; written over when the worker writes it next",
    Writer.HOST: "written over when the host writes it next",
}
"""what a change of a record does that is not for people to write"""


def registry_page() -> str:
    """The whole page."""
    rows = [
        (f"`{branch.path}`{' *ephemeral*' if branch.ephemeral else ''}", _writers(branch), branch.about, _change(branch)) for branch in TREE
    ]
    folders = [f"- {owner.value}: {', '.join(f'`{path}`' for path in OWN_FOLDERS[owner])}" for owner in BranchOwner if owner in OWN_FOLDERS]
    legend = [f"- *{writer.name.lower()}*: {writer.value}" for writer in Writer]
    return (
        "\n".join(
            [
                _HEAD,
                *_table(("record", "written by", "what", "what a change by hand does"), rows),
                "",
                *legend,
                "",
                _RIGHTS.rstrip(),
                "",
                *folders,
                "",
                _TAIL.rstrip(),
                "",
            ]
        )
        + "\n"
        + "\n".join(_table(("record", "keys (`?`: may be absent)"), _keys()))
        + "\n"
    )


def _writers(branch: Branch[Any]) -> str:
    return ", ".join(writer.name.lower() for writer in branch.writers)


def _change(branch: Branch[Any]) -> str:
    if branch.path.endswith(".term"):
        return "never change or remove it: [Terms](#terms)"
    if branch.change:
        return branch.change
    if branch.ephemeral:
        return "removed: who made it takes it for lost, and makes it again"
    return _WRITTEN_OVER[branch.writers[0]]


def _keys() -> Iterable[tuple[str, str]]:
    kinds: dict[type[Record], list[str]] = {}
    for branch in TREE:
        kinds.setdefault(branch.kind, []).append(f"`{branch.path}`")
    for kind, paths in kinds.items():
        fields = [f"`{field.name}`{'' if field.required else '?'} {_type(field.type)}" for field in msgspec.structs.fields(kind)]
        yield ", ".join(paths), ", ".join(fields) or "none"


def _type(annotation: Any) -> str:
    """In words of JSON."""
    match annotation if isinstance(annotation, msgspec.inspect.Type) else msgspec.inspect.type_info(annotation):
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.IntType():
            return "whole number"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.FloatType():
            return "number"
        case msgspec.inspect.LiteralType(values):
            return "one of " + " ".join(f"`{value}`" for value in values)
        case msgspec.inspect.UnionType(types):
            return _type(next(one for one in types if not isinstance(one, msgspec.inspect.NoneType)))
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            return "list"
    return "object"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
