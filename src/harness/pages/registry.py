"""Generates docs/registry.md, the page about the tree of the registry, from its declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.registry.contract import COMMIT_BYTES, RECORD_BYTES
from scribengin.registry.record_io import DAMAGED
from scribengin.registry.tree import OWN_FOLDERS, TREE, BranchOwner, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scribengin.registry.record_io import Record
    from scribengin.registry.tree import Branch

_HEAD = f"""\
# The registry

The registry is what masters, workers and people share: small records in ZooKeeper, below one path (`zk://a:2181,b:2181/path`; `/scribengin`
if none is given). The tree is an interface: other programs may read it, and people may write the records that the table allows, with
ZooKeeper's own shell. [Flows that are managed](control.md) describes what uses it. This page is generated from `registry/tree.py`; its
statements about records, rights and limits are tested on a real server.

## Records

- A record is one JSON object of at most {RECORD_BYTES:,} bytes; one commit writes at most {COMMIT_BYTES:,}. A folder is an empty record of
  zero bytes.
- `format` is the format number of a record, 1 if it is absent. A program reads what it can of a newer format, and does not replace the
  record.
- A program that replaces a record keeps the keys that it does not know. Children that are not in the table are left unchanged.
- A record that is not valid JSON, or does not have the expected form, is never fatal and affects no other flow. A record of people
  (`desired`, `limits`, `quotas`, `groups`, a binding) is refused and left unchanged; [by hand](#by-hand) describes what applies meanwhile.
  A record of masters or workers is set aside: moved to `{DAMAGED}/NAME@REVISION` beside it, with `why` and its first 64 KiB, and created
  again from what is observed. A version (`spec/N`) cannot be created again: the flow is left unchanged, `degraded`, and its workers
  continue. `status NAME` shows all of it.
- A name that begins with a dot is not the name of a record.

## Who writes what

An *ephemeral* record is removed when the session that created it ends.
"""

_RIGHTS = """\
## Rights

The login that creates the root has all rights there, and a record inherits the rights of its parent. So the masters own the whole tree; a
worker's own login has all rights below the tier's folders, and a host's login below the host's folders. Gateways use the masters' login,
or one that has all rights on `physicalnodes` and `gateways`, and on `rollout` of the flows with agents. Elsewhere they have only the rights
that the root grants:

"""

_TAIL = f"""\
`tokens` are written by masters at the request of an admin, and by `scribengin token` with the masters' login. The stored value does not
grant access: it is the scrypt hash of 256 random bits. Names, roles and labels can be read by every client that can read the tree.

Masters can also write what a worker or a host creates in its folders. A worker sees the hash of the masters' password in the rights of
its own folders: use a long random password. A root that every client can write to is refused, unless open access is allowed explicitly.

## Terms

The lease to lead, or to run a tier, is an ephemeral record (`leader`, `lease`). Its new holder replaces the record `….term` beside it in
the same step. Each write under a lease checks both in its own transaction: the ephemeral record exists, and `….term` has the version that
its holder gave it. So a holder whose session has expired can no longer write. Never delete a `….term`: its version would start from zero
again.

## By hand

With the jars of PySpark, for example, `java -cp 'JARS/*' org.apache.zookeeper.ZooKeeperMain -server HOST:2181`; then

```
addauth digest USER:PASSWORD
get -s /scribengin/limits/tweets
set -v 3 /scribengin/limits/tweets '{{"format":1,"rows_per_s":500}}'
```

`-v` is the `dataVersion` that `get -s` shows: with it, a record that was changed in the meantime is not overwritten.

A valid change has the same effect as a command. An invalid change is reported: `refused` in the flow's `status` names the record,
its `version`, `why`, and the `remedy`, until the record is fixed; `list`, `status` and `describe` show it.

- `desired` is not valid JSON, lacks a key, names a state or a version that does not exist, is empty, or was removed: the last
  valid desired state stays in force, and any command writes the record again.
- `file` is not a valid flow, or its version is refused: the flow continues unchanged; see
  [a flow as text](#a-flow-as-text).
- A tier is bound to two nodes: the binding that was written first applies.
- A tier is bound to a node that never registered, or a binding names a tier that the flow does not have: the binding is ignored. Once a
  node registers, its bindings apply.
- `limits` cannot be read: a running worker keeps the previous limits. A number in them that is not above 0, or an unknown key, is
  ignored.
- `workers/…` names a tier that the flow does not have, a number below 1 or above 16, or more than one for a tier whose steps keep state:
  that tier has the number of workers in its version; the other tiers of the record have the number in the record. With a word other than
  `each` the record is ignored for all tiers.
- The `group` of a logical node is not a group of hosts of the flow: the tier runs on the group in its version. A valid group applies until
  a version names another group than the version before.
- A quota cannot be read, or a number in it is not above 0: flows with its label that have been started continue, and restart if they were
  lost; no other flow starts. Their shares of its rows per second stay as they were.
- `groups/…` cannot be read: a running worker keeps the previous settings, and the master logs this. Members that a flow does not have, and
  costs that are not above 0, are ignored. If all members that a flow may use are `out`, this is ignored for that flow (`group show`
  reports it).

## A flow as text

A flow can be submitted without any program of Scribengin: write the text of its flow file to `flows/NAME/file`, where NAME is the flow's.
The record is the text itself, or JSON that contains it, of at most {RECORD_BYTES:,} bytes:

```
create /scribengin/flows/tweets ""
create /scribengin/flows/tweets/file '{{"text": "version: 1\\nname: tweets\\n…", "base": "/data/tweets"}}'
```

In ZooKeeper's shell a text of several lines is one word of the command line, `zkCli.sh -server HOST:2181 set /scribengin/flows/tweets/file
"$(cat tweets.yaml)"`, if the registry has no login; after `addauth` use the JSON, in one line: `jq -Rs '{{text: .}}' tweets.yaml`
prints it, and a `'` in it is written `\\u0027`. Other clients write the bytes of the file;
`PUT /v1/registry/flows/NAME/file` of the API accepts the JSON.

- The leading master applies a text once for each time that it is written, as `apply` does: it validates and plans it, and makes a package
  and a version of it, `by` `flows/NAME/file`. The same commit writes `taken`, which names the version: a master that is killed loses no
  text and applies none twice.
- `base`: where relative paths start; if absent, the same place as in the desired version. In a new flow without `base`, all paths must be
  absolute. `state`: the new desired state, `running` if absent. `accept`: `again` or `lost`, as for `apply --accept`.
- A later command (`apply`, `rollback`, `stop`) applies until the text is written again; the same text counts as written again, too.
  Removing `file` changes nothing; `delete` removes it with the flow.
- An invalid text is refused, with the lines: see `refused` in the flow's `status`, and `taken`. The running version continues. A text that
  is refused is not read again until it is written again. If the obstacle is temporary, such as an operation that is under way, the text is
  tried again automatically. `list` shows a flow that has no version yet as `created`.
- The text is submitted without other files. A flow with Python or schema files beside it is refused: use `scribengin apply`, which includes
  its folder. A secret stays a reference, `${{secret:env/NAME}}`.

## Keys

"""


_WRITTEN_OVER = {
    Writer.MASTER: "overwritten when the leader writes it again",
    Writer.CANDIDATE: "overwritten when a master writes it again",
    Writer.WORKER: "read only; overwritten when the worker writes it again",
    Writer.HOST: "overwritten when the host writes it again",
    Writer.GATEWAY: "overwritten when a gateway writes it again",
}
"""record → the effect of changing it by hand, for records that people should not write"""


def registry_page() -> str:
    """The text of docs/registry.md."""
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
        return "removed: its creator treats it as lost and creates it again"
    return _WRITTEN_OVER[branch.writers[0]]


def _keys() -> Iterable[tuple[str, str]]:
    kinds: dict[type[Record], list[str]] = {}
    for branch in TREE:
        kinds.setdefault(branch.kind, []).append(f"`{branch.path}`")
    for kind, paths in kinds.items():
        fields = [f"`{field.name}`{'' if field.required else '?'} {_type(field.type)}" for field in msgspec.structs.fields(kind)]
        yield ", ".join(paths), ", ".join(fields) or "none"


def _type(annotation: Any) -> str:
    """The JSON name of a Python type."""
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
