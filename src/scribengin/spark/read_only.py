"""Read-only records, including the contents of their lists and structs."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.core.types import Schema, Type

    Guard = Callable[[Any], Any]

READ_ONLY = "the record is read-only: utilities of `order: free` run in any order"


def view_of(schema: Schema) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    """What makes such a record of a row of `schema`, which itself is never handed out. Lists, structs and maps are copied for it; a row of
    a flat schema is not."""
    guards = [(field.name, guard) for field in schema.fields if (guard := _guard(field.type)) is not None]
    if not guards:
        return MappingProxyType

    def view(row: dict[str, Any]) -> Mapping[str, Any]:
        seen = dict(row)
        for name, guard in guards:
            if name in seen:
                seen[name] = guard(seen[name])
        return MappingProxyType(seen)

    return view


def _guard(type_: Type) -> Guard | None:
    """What makes a value of that type read-only; None if it is so anyway. Of a value of another type nothing is made."""
    match type_.name:
        case "ARRAY":
            return _of_list(_guard(type_.parts[0]))
        case "MAP":
            return _of_map(_guard(type_.parts[1]))
        case "STRUCT":
            return _of_struct([(field.name, guard) for field in type_.fields if (guard := _guard(field.type)) is not None])
    return None


def _of_list(inner: Guard | None) -> Guard:
    def guard(value: Any) -> Any:
        if not isinstance(value, list | tuple) or (inner is None and isinstance(value, tuple)):
            return value
        return _List(value if inner is None else map(inner, value))

    return guard


def _of_map(inner: Guard | None) -> Guard:
    def guard(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return _Dict(value if inner is None else {key: inner(each) for key, each in value.items()})

    return guard


def _of_struct(inner: list[tuple[str, Guard]]) -> Guard:
    def guard(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return _Dict(value | {name: each(value[name]) for name, each in inner if name in value})

    return guard


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError(READ_ONLY)


class _List(list[Any]):
    """A read-only list. A copy of it, by `list`, `copy` or pickle, is a plain list."""

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


class _Dict(dict[Any, Any]):
    """A read-only dict. A copy of it is a plain dict."""

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
