"""Declaration of structs for untrusted data, their descriptions in words, and their conversion to plain data.

A field can have limits, conversions and other names. Defining a class takes microseconds: annotations are text until
`fields_of` resolves them.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import NODEFAULT, UNSET

T = TypeVar("T")
UnknownKeys = Literal["ignore", "forbid", "keep"]
FIELD_INFO = "__field_info__"


class FieldInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a field besides its type."""

    default: Any = UNSET
    """A value, or a struct class whose defaults are used; unset for a required field."""
    name: str | None = None
    """The name in the data, if it is not derived from the attribute's name."""
    other_names: tuple[str, ...] = ()
    """Additional names that are accepted in the data."""
    description: str = ""
    limits: Mapping[str, Any] = {}
    """Any of `ge`, `gt`, `le`, `lt`, `min_length`, `max_length` and `pattern`, as in `msgspec.Meta`."""
    check: Callable[[Any], object] | None = None
    """Called with the decoded value; raises `ValueError` if it is not valid."""


def declare(
    default: Any = UNSET,
    description: str = "",
    *,
    name: str | None = None,
    other_names: tuple[str, ...] = (),
    check: Callable[[Any], object] | None = None,
    **limits: Any,
) -> Any:
    """Declare a field with a description, another name, a check or limits such as `ge`, `max_length`, `pattern`."""
    return FieldInfo(
        default=default, description=description, name=name, other_names=other_names, check=check, limits=limits
    )


class Parsed(msgspec.Struct, frozen=True):
    """Annotates a type with a function that converts the value in the data before the type is checked.

    `read` raises `ValueError` for a value that it cannot convert.
    """

    read: Callable[[Any], object]


class DeclaredMeta(msgspec.StructMeta):
    """Replaces each `FieldInfo` in a class body by its default, because msgspec cannot store the rest."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> DeclaredMeta:
        found = {attribute: each for attribute, each in namespace.items() if isinstance(each, FieldInfo)}
        for attribute, info in found.items():
            namespace[attribute] = _struct_field(info)
        namespace[FIELD_INFO] = found
        return super().__new__(mcls, name, bases, namespace, kw_only=True, **options)


def _struct_field(info: FieldInfo) -> Any:
    default = info.default
    if default is UNSET:
        return msgspec.field(name=info.name)
    if isinstance(default, (list, dict, set)):
        return msgspec.field(default_factory=default.copy, name=info.name)
    if isinstance(default, DeclaredMeta):
        default = default()  # immutable, so it can be shared
    return msgspec.field(default=default, name=info.name)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Declared(msgspec.Struct, metaclass=DeclaredMeta, frozen=True, dict=True):
    """The base class of structs that `retinue.structs.decode` decodes from untrusted data."""

    unknown_keys: ClassVar[UnknownKeys] = "ignore"
    """How undeclared keys are treated; `keep` puts them into the field `other_keys`."""
    accepts_attribute_names: ClassVar[bool] = False
    """Whether the name of the attribute is also accepted as key."""

    @classmethod
    def _prepare(cls, data: Any) -> Any:
        """Convert the data before decoding; a subclass may accept other forms than an object."""
        return data

    def _check(self) -> None:
        """Raise `ValueError` if the fields contradict each other."""


class Field(msgspec.Struct, frozen=True):
    """A field with its resolved type."""

    attribute: str
    key: str
    type: Any
    info: FieldInfo
    is_required: bool


_NO_INFO = FieldInfo()


@cache
def fields_of(struct: type[msgspec.Struct]) -> Mapping[str, Field]:
    """Return the fields of a struct by their key in the data, in the order of declaration."""
    infos: dict[str, FieldInfo] = {}
    for base in reversed(struct.__mro__):
        infos |= vars(base).get(FIELD_INFO, {})
    hints = get_type_hints(struct, include_extras=True)
    names = struct.__struct_fields__
    defaults = struct.__struct_defaults__
    padded = (*[NODEFAULT] * (len(names) - len(defaults)), *defaults)
    return {
        key: Field(name, key, hints[name], infos.get(name, _NO_INFO), default is NODEFAULT)
        for name, key, default in zip(names, struct.__struct_encode_fields__, padded, strict=True)
        if name != "other_keys"
    }


@cache
def default_of(struct: type[msgspec.Struct], attribute: str) -> Any:
    """Return the default of a field that is not required."""
    for field in msgspec.structs.fields(struct):
        if field.name == attribute:
            return field.default_factory() if field.default_factory is not NODEFAULT else field.default
    raise AttributeError(attribute)


_SET = "set_attributes"


def set_attributes(struct: Declared) -> frozenset[str]:
    """Return the attributes that the decoded data set; for a struct that was not decoded, those with other values."""
    known: frozenset[str] | None = vars(struct).get(_SET)
    if known is not None:
        return known
    fields = fields_of(type(struct)).values()
    return frozenset(
        field.attribute
        for field in fields
        if field.is_required or getattr(struct, field.attribute) != default_of(type(struct), field.attribute)
    )


def mark_set(struct: Declared, attributes: frozenset[str]) -> None:
    """Record which attributes the data set. It does not affect equality."""
    vars(struct)[_SET] = attributes


def unwrap(hint: Any) -> tuple[Any, tuple[Parsed, ...]]:
    """Return a type without `Annotated`, and its conversions."""
    if get_origin(hint) is not Annotated:
        return hint, ()
    inner, *marks = get_args(hint)
    return inner, tuple(mark for mark in marks if isinstance(mark, Parsed))


_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    timedelta: "a duration such as 30m",
}
_PLURALS = {
    "a whole number": "whole numbers",
    "a number": "numbers",
    "text": "texts",
    "an object": "objects",
    "any value": "values",
}


def arms_of(hint: Any) -> Iterator[Any]:
    """Return the alternatives of a type, without `Annotated`; a type that is not a union is its only alternative."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from arms_of(get_args(hint)[0])
    elif origin in (Union, UnionType):
        for arm in get_args(hint):
            yield from arms_of(arm)
    else:
        yield getattr(hint, "__supertype__", hint)


def describe(hint: Any, limits: Mapping[str, Any] | None = None) -> str:
    """Describe a type and its limits, such as `a whole number, at least 1`."""
    words: list[str] = []
    for arm in arms_of(hint):
        word = _describe_arm(arm)
        if arm is not NoneType and word not in words:
            words.append(word)
    return " or ".join(words) + _describe_limits(limits or {})


def _describe_arm(arm: Any) -> str:
    origin = get_origin(arm)
    if arm in _WORDS:
        return _WORDS[arm]
    if origin is Literal:
        values = [json.dumps(value) for value in get_args(arm)]
        return values[0] if len(values) == 1 else f"one of {', '.join(values)}"
    if origin in (list, tuple, set):
        item = describe(get_args(arm)[0])
        return f"a list of {_PLURALS.get(item, f'values, each {item}')}"
    if isinstance(arm, type) and issubclass(arm, Declared):
        if getattr(arm, "boolean_is_enough", False):
            return "true or an object"
        return "text or an object" if getattr(arm, "text_is_enough", False) else "an object"
    if origin is dict:
        return "an object"
    # A class that is decoded by a conversion may describe itself.
    return getattr(arm, "type_description", "any value")


def _describe_limits(limits: Mapping[str, Any]) -> str:
    names = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    words = [f"{name} {limits[limit]}" for limit, name in names.items() if limit in limits]
    return f", {' and '.join(words)}" if words else ""


_WRITERS: dict[type, Callable[[Any], object]] = {}


def write_with(kind: type, write: Callable[[Any], object]) -> None:
    """Register a function that encodes values of a type that JSON does not have."""
    _WRITERS[kind] = write


def to_plain(value: Any, *, only_set: bool = False, omit_none: bool = False, omit_defaults: bool = False) -> Any:
    """Convert a struct, or a value of one, to plain data with the keys of the file.

    `only_set` omits keys that the decoded data did not set, `omit_none` keys without a value, `omit_defaults` keys
    with the default value.
    """

    def is_shown(struct: Declared, field: Field) -> bool:
        found = getattr(struct, field.attribute)
        is_default = omit_defaults and not field.is_required and found == default_of(type(struct), field.attribute)
        return not is_default and not (omit_none and found is None)

    def plain(value: Any) -> Any:
        if isinstance(value, Declared):
            chosen = set_attributes(value) if only_set else None
            shown = {
                field.key: plain(getattr(value, field.attribute))
                for field in fields_of(type(value)).values()
                if (chosen is None or field.attribute in chosen) and is_shown(value, field)
            }
            return shown | getattr(value, "other_keys", {})
        if isinstance(value, (list, tuple, set)):
            return [plain(each) for each in value]
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        if isinstance(value, enum.Enum):
            return value.value
        write = _WRITERS.get(type(value))
        return write(value) if write else value

    return plain(value)
