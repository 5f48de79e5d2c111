"""Generation of JSON Schema for declared structs."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from retinue.structs.declare import Declared, Field, default_of, fields_of, to_plain, unwrap

_TYPES: dict[Any, dict[str, Any]] = {
    NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    timedelta: {"type": "string", "format": "duration"},
}
_NUMBERS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_TEXTS = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
_LIMITS: dict[Any, dict[str, str]] = {int: _NUMBERS, float: _NUMBERS, str: _TEXTS}
_LISTS = {"min_length": "minItems", "max_length": "maxItems"}
_SHORT_FORMS = {"text_is_enough": "string", "boolean_is_enough": "boolean"}
_REFERENCE = "#/$defs/{name}"

Annotate = Callable[[type[Declared], Field], Mapping[str, Any]]
"""Returns additional keywords for the property of a field."""


def json_schema(hint: Any, annotate: Annotate | None = None) -> dict[str, Any]:
    """Return the JSON Schema of a struct or of any field type; keywords are in alphabetical order."""
    definitions: dict[str, Any] = {}
    schema = _Schemas(definitions, annotate or (lambda struct, field: {})).of(hint, {})
    name = schema.get("$ref", "").rpartition("/")[2]
    if name and schema == {"$ref": _REFERENCE.format(name=name)}:
        schema = definitions.pop(name)
    return _sorted(schema | {"$defs": dict(sorted(definitions.items()))}) if definitions else schema


def _sorted(schema: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(schema.items()))


class _Schemas:
    """Generates schemas; referenced structs are in `definitions`."""

    def __init__(self, definitions: dict[str, Any], annotate: Annotate) -> None:
        self.definitions = definitions
        self.annotate = annotate

    def of(self, hint: Any, limits: Mapping[str, Any]) -> dict[str, Any]:
        bare, _ = unwrap(hint)
        bare = getattr(bare, "__supertype__", bare)
        origin = get_origin(bare)
        if origin in (Union, UnionType):
            arms = [self.of(arm, limits) for arm in get_args(bare)]
            # An alias of a union inside a union is one list of alternatives.
            return {"anyOf": [each for arm in arms for each in arm.get("anyOf", [arm])]}
        if origin is Literal:
            return _enumeration(get_args(bare))
        if origin in (list, tuple, set):
            return _sorted({"type": "array", "items": self.of(get_args(bare)[0], {}), **_limited(limits, _LISTS)})
        if origin is dict:
            key, below = get_args(bare)
            values = True if below in (Any, object) else self.of(below, {})
            names = {} if key is str else {"propertyNames": self.of(key, {})}
            return {"additionalProperties": values, **names, "type": "object"}
        if bare in _TYPES:
            return _sorted(_TYPES[bare] | _limited(limits, _LIMITS.get(bare, {})))
        if isinstance(bare, type) and issubclass(bare, Declared):
            return self.reference(bare)
        if isinstance(bare, type) and issubclass(bare, enum.Enum):
            return _enumeration(tuple(member.value for member in bare))
        return {} if bare in (Any, object) else self.foreign(bare)

    def foreign(self, kind: type) -> dict[str, Any]:
        """Return the schema of a struct or dataclass that is not declared with this package."""
        (schema,), found = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
        self.definitions |= found
        return schema

    def reference(self, struct: type[Declared]) -> dict[str, Any]:
        name = struct.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # a struct may be recursive
            self.definitions[name] = self.object(struct)
        return {"$ref": _REFERENCE.format(name=name)}

    def object(self, struct: type[Declared]) -> dict[str, Any]:
        fields = fields_of(struct).values()
        schema: dict[str, Any] = {"properties": {field.key: self.property(struct, field) for field in fields}}
        required = [field.key for field in fields if field.is_required]
        if required:
            schema["required"] = required
        if struct.unknown_keys != "ignore":
            schema["additionalProperties"] = struct.unknown_keys == "keep"
        if struct.__doc__:
            schema["description"] = inspect.cleandoc(struct.__doc__)
        other = [kind for name, kind in _SHORT_FORMS.items() if getattr(struct, name, False)]
        return _sorted(schema | {"title": struct.__name__, "type": ["object", *other] if other else "object"})

    def property(self, struct: type[Declared], field: Field) -> dict[str, Any]:
        schema = {**self.of(field.type, field.info.limits), **self.annotate(struct, field)}
        if field.info.description:
            schema["description"] = field.info.description
        if not field.is_required:
            default = default_of(struct, field.attribute)
            if not isinstance(default, (list, dict, set, Declared)):
                schema["default"] = to_plain(default)
        return _sorted(schema)


def _limited(limits: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {name: limits[limit] for limit, name in names.items() if limit in limits}


def _enumeration(values: tuple[Any, ...]) -> dict[str, Any]:
    kinds = {type(value) for value in values}
    kind = _TYPES[kinds.pop()] if len(kinds) == 1 else {}
    return _sorted({"const": values[0]} | kind) if len(values) == 1 else {"enum": list(values)} | kind
