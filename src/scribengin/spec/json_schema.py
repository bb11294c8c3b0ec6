"""JSON Schema (draft 2020-12) of flow files, for editors; from the same declarations as the parser.

It covers keys, kinds, choices and options. `validate` checks rules that need several nodes, SQL or a module's code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from scribengin.spec import keys, tier_keys
from scribengin.spec.reader import NAME_PATTERN
from scribengin.spec.tiers import ARROW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.core.options import NodeType, Option
    from scribengin.spec.key import Key, Section


Json = dict[str, Any]

_REFERENCE: Json = {"type": "string", "pattern": r"\$\{"}
_TEXT: Json = {"type": ["string", "number", "boolean"]}
_NAME: Json = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
_DURATION: Json = {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|min|h|d)\s*$|\$\{"}
_BYTES: Json = {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(B|[kMGT]B|[KMGT]iB)\s*$|\$\{"}
_PERCENT: Json = {"type": "string", "pattern": r"^\s*(\d{1,2}(\.\d+)?|100(\.0+)?)\s*%\s*$|^\s*\d+\s*$|\$\{"}
_WATERMARK: Json = {"type": "string", "pattern": r"^\s*(`[^`]+`|\S+)\s+\d+(\.\d+)?\s*(ms|s|m|min|h|d)\s*$|\$\{"}
_GROUP: Json = {"type": "string", "pattern": rf"^{NAME_PATTERN}(\.{NAME_PATTERN})?$|\$\{{"}
_ARROW = "^" + ARROW.pattern.removesuffix(r"\Z") + "$"
_FREE = {"^x-": True}


def flow_schema(source_types: Mapping[str, NodeType], sink_types: Mapping[str, NodeType]) -> Json:
    """The schema of a whole flow file, with the options of the given types."""
    flow = _section(keys.FLOW)
    flow["properties"]["sources"] = _nodes(_typed(keys.SOURCE, source_types))
    flow["properties"]["steps"] = _nodes(_step())
    flow["properties"]["sinks"] = _nodes(_typed(keys.SINK, sink_types))
    flow["properties"]["edges"] = _nodes(_section(tier_keys.EDGE), _ARROW)
    test = _section(keys.TEST)
    flow["properties"]["tests"] |= {"anyOf": [_TEXT, {"type": "array", "items": {"anyOf": [{"type": "string"}, test]}}]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Scribengin flow", **flow}


def _nodes(node: Json, pattern: str = _NAME["pattern"]) -> Json:
    return {
        "type": "object",
        "minProperties": 1,
        "patternProperties": {**_FREE, pattern: node},
        "additionalProperties": False,
    }


def _section(section: Section) -> Json:
    properties = {key.name: {"description": key.doc} | _value(key) for key in section.keys}
    return {
        "type": "object",
        "description": section.doc,
        "properties": properties,
        "required": [key.name for key in section.keys if key.required],
        "patternProperties": _FREE,
        "additionalProperties": False,
    } | ({"minProperties": 1} if section.filled else {})


def _typed(section: Section, types: Mapping[str, NodeType]) -> Json:
    """One alternative for each type, selected by `type`, so that an editor proposes only the options of that type."""
    common = _section(section)
    alternatives = []
    for declared in types.values():
        schema = _section(section)
        schema["properties"] |= {option.name: {"description": option.doc} | _option(option) for option in declared.options}
        schema["properties"]["type"] = {"const": declared.type, "description": declared.doc}
        wanted = [option.name for option in declared.options if option.required]
        by_member = declared.by_member if "to" in schema["properties"] else None
        shared = [by_member.name] if by_member is not None and by_member.kind != "path" else []
        schema["required"] += [name for name in wanted if name not in shared]
        schema |= {"anyOf": [{"required": shared}, {"required": ["to"]}]} if shared else {}
        alternatives.append({"if": {"properties": {"type": {"const": declared.type}}}, "then": schema})
    return {
        "type": "object",
        "description": section.doc,
        "properties": {"type": {"enum": sorted(types), "description": common["properties"]["type"]["description"]}},
        "required": ["type"],
        "allOf": alternatives,
    }


def _step() -> Json:
    step = _section(keys.STEP)
    one = [{"required": [name]} for name in keys.operation_names()]
    union: Json = {
        "properties": {"from": {"type": "array", "minItems": 2}},
        "required": ["from"],
        "not": {"anyOf": one},
    }
    return step | {"oneOf": [*one, union]}


def _value(key: Key) -> Json:
    match key.kind:
        case "text" | "raw" | "expression" | "column":
            return _TEXT
        case "int" | "float":
            return {"anyOf": [{"type": "integer" if key.kind == "int" else "number", **_bounds(key)}, _REFERENCE]}
        case "int_or_word":
            return {"anyOf": [{"type": "integer", **_bounds(key)}, {"enum": list(key.choices)}, _REFERENCE]}
        case "bytes":
            return _BYTES
        case "secrets":
            return {"type": "object", "additionalProperties": _TEXT}
        case "settings":
            return {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
        case "labels":
            return {"type": "object", "patternProperties": {_NAME["pattern"]: _TEXT}, "additionalProperties": False}
        case "group":
            return _GROUP
        case "words":
            return {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
        case "bool":
            return {"anyOf": [{"type": "boolean"}, _REFERENCE]}
        case "choice":
            return {"anyOf": [{"enum": list(key.choices)}, _REFERENCE]}
        case "duration":
            return {"anyOf": [_DURATION, _section(key.section)]} if key.section else _DURATION
        case "bound":
            plain: Json = {"anyOf": [{"type": "integer", "minimum": 0}, _PERCENT]}
            return {"anyOf": [plain, _section(key.section)]} if key.section else plain
        case "name":
            return {"anyOf": [_NAME, _REFERENCE]}
        case "columns" | "inputs":
            return {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1, "uniqueItems": True}]}
        case "names":
            return {"anyOf": [_NAME, {"type": "array", "items": _NAME, "uniqueItems": True}]}
        case "expressions" | "times" | "cases":
            return {"type": "object", "additionalProperties": _TEXT, "minProperties": 1}
        case "selection":
            texts: Json = {"type": "array", "items": _TEXT, "minItems": 1}
            return {"anyOf": [_TEXT, texts, {"type": "object", "additionalProperties": _TEXT, "minProperties": 1}]}
        case "watermark":
            return {"anyOf": [_WATERMARK, _section(key.section)]} if key.section else _WATERMARK
        case "schema":
            return {"anyOf": [{"type": "string"}, _section(key.section)]} if key.section else {"type": "string"}
        case "function":
            function: Json = {"type": "string", "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$|\$\{"}
            return {"anyOf": [function, _section(key.section)]} if key.section else function
        case "section":
            assert key.section
            return _section(key.section)
        case "word_or_section":
            assert key.section
            return {"anyOf": [{"enum": list(key.choices)}, _section(key.section), _REFERENCE]}
        case "sections":
            assert key.section
            return {"type": "array", "items": _section(key.section), "minItems": 1}
        case "raws":
            return {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
        case "own":
            return {}
        case "nodes":
            return _nodes(_section(key.section)) if key.section else {"type": "object"}
        case _:
            assert_never(key.kind)


def _option(option: Option) -> Json:
    bounds = _bounds(option)
    match option.kind:
        case "text" | "path":
            return _TEXT
        case "int":
            return {"anyOf": [{"type": "integer", **bounds}, _REFERENCE]}
        case "float":
            return {"anyOf": [{"type": "number", **bounds}, _REFERENCE]}
        case "bool":
            return {"anyOf": [{"type": "boolean"}, _REFERENCE]}
        case "duration":
            return _DURATION
        case "bytes":
            return _BYTES
        case "choice":
            return {"anyOf": [{"enum": list(option.choices)}, _REFERENCE]}
        case "list" if option.keys:
            item = {"anyOf": [_TEXT, _keys(option)]}
            return {"anyOf": [*item["anyOf"], {"type": "array", "items": item, "uniqueItems": True}]}
        case "list":
            return {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "uniqueItems": True}]}
        case "words":
            return {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
        case "section":
            return _keys(option)
        case "schema":
            return {"type": "string"}
        case "map":
            return {"type": "object", "additionalProperties": _TEXT}
        case "columns":
            word: Json = {"enum": list(option.choices)} if option.choices else _TEXT
            item = word if option.choices else _TEXT
            return {
                "anyOf": [item, {"type": "array", "items": item, "uniqueItems": True}, {"type": "object", "additionalProperties": word}]
            }
        case _:
            assert_never(option.kind)


def _bounds(declared: Key | Option) -> dict[str, float]:
    return {name: bound for name, bound in (("minimum", declared.low), ("maximum", declared.high)) if bound is not None}


def _keys(option: Option) -> Json:
    properties = {key.name: {"description": key.doc} | _option(key) for key in option.keys}
    required = [key.name for key in option.keys if key.required]
    return {"type": "object", "properties": properties, "additionalProperties": False} | ({"required": required} if required else {})
