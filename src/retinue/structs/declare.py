"""How a struct for untrusted data is declared: fields with limits, conversions and names of their own.

Defining a class costs microseconds: annotations stay text until `fields_of` is asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
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
    """What a declaration says about a field besides its type."""

    default: Any = UNSET
    """A value, or the class of a section whose defaults are the default; unset for a required field."""
    name: str | None = None
    """The name in the data, if it is not the attribute's name in the class's spelling."""
    other_names: tuple[str, ...] = ()
    """Further names that are accepted in the data."""
    description: str = ""
    limits: Mapping[str, Any] = {}
    """Any of `ge`, `gt`, `le`, `lt`, `min_length`, `max_length` and `pattern`, as in `msgspec.Meta`."""
    check: Callable[[Any], object] | None = None
    """Called with the decoded value; raises `ValueError` if the value is not valid."""


def declare(
    default: Any = UNSET,
    description: str = "",
    *,
    name: str | None = None,
    other_names: tuple[str, ...] = (),
    check: Callable[[Any], object] | None = None,
    **limits: Any,
) -> Any:
    """Declare a field that has a description, another name, a check or limits such as `ge`, `max_length`, `pattern`."""
    return FieldInfo(
        default=default, description=description, name=name, other_names=other_names, check=check, limits=limits
    )


class Parsed(msgspec.Struct, frozen=True):
    """Marks a type with a function that converts the value in the data before the type is checked.

    `read` raises `ValueError` for a value that it cannot convert.
    """

    read: Callable[[Any], object]


class DeclaredMeta(msgspec.StructMeta):
    """Replaces each `FieldInfo` in a class body by its default, because msgspec has no place for the rest."""

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
        default = default()  # frozen, so that every owner can share it
    return msgspec.field(default=default, name=info.name)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Declared(msgspec.Struct, metaclass=DeclaredMeta, frozen=True, dict=True):
    """The base of structs that `retinue.structs.decode` reads from untrusted data."""

    unknown_keys: ClassVar[UnknownKeys] = "ignore"
    """What happens to keys that the struct does not declare; `keep` puts them into its field `other_keys`."""
    accepts_attribute_names: ClassVar[bool] = False
    """Whether a key may also be written as the attribute is named."""

    @classmethod
    def _prepare(cls, data: Any) -> Any:
        """The data to decode; a subclass may accept other forms than an object here."""
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
    """The fields of a struct by their key in the data, in the order of declaration."""
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
    """The default of a field that is not required."""
    for field in msgspec.structs.fields(struct):
        if field.name == attribute:
            return field.default_factory() if field.default_factory is not NODEFAULT else field.default
    raise AttributeError(attribute)


_SET = "set_attributes"


def set_attributes(struct: Declared) -> frozenset[str]:
    """The attributes that the decoded data set; for a struct made by hand those that differ from the defaults."""
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
    """A type without `Annotated`, and the conversions that were marked there."""
    if get_origin(hint) is not Annotated:
        return hint, ()
    inner, *marks = get_args(hint)
    return inner, tuple(mark for mark in marks if isinstance(mark, Parsed))
