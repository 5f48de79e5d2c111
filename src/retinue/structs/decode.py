"""Decoding of plain data into a struct; reports every problem, not only the first.

A text with a number or a boolean is accepted for one, because environment variables and models write them so.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from retinue.structs.declare import Declared, Field, describe, fields_of, mark_set, unwrap

Step = str | int
FaultKind = Literal["missing", "unknown", "type", "value"]

_SHOWN_CHARS: Final = 60
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,300}")
_TRUTH = {
    **dict.fromkeys(("true", "yes", "on", "y", "t", "1"), True),
    **dict.fromkeys(("false", "no", "off", "n", "f", "0"), False),
}


class DecodeProblem(msgspec.Struct, frozen=True):
    """One problem of the data and its path; for a missing key `path` ends with the key."""

    path: tuple[Step, ...]
    kind: FaultKind
    message: str
    expected: str = ""
    """The expected value, if the value has the wrong type or is out of range."""

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path)) or 'the value'}: {self.message}"


class DecodeError(ValueError):
    """The data does not fit the struct; `faults` lists all problems."""

    def __init__(self, faults: Sequence[DecodeProblem]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = tuple(faults)


class _FailedType(enum.Enum):
    FAILED = enum.auto()


_FAILED: Final = _FailedType.FAILED

D = TypeVar("D", bound=Declared)


def decode(struct: type[D], data: object, *, strict: bool = False) -> D:
    """Decode plain data into a struct; raise `DecodeError` with every problem.

    `strict` refuses texts for numbers and booleans.
    """
    walk = _Walk(strict=strict)
    made = walk.value(struct, data, (), {})
    if walk.faults:
        raise DecodeError(walk.faults)
    return cast("D", made)


class _Walk:
    """Decodes data in one pass and collects its problems."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.faults: list[DecodeProblem] = []

    def fail(self, path: tuple[Step, ...], kind: FaultKind, message: str, expected: str = "") -> _FailedType:
        self.faults.append(DecodeProblem(path, kind, message.rstrip("."), expected))
        return _FAILED

    def value(self, hint: Any, data: Any, path: tuple[Step, ...], limits: Mapping[str, Any]) -> Any:
        """Return the decoded value, or `_FAILED` with the reasons in `faults`."""
        bare, conversions = unwrap(hint)
        for conversion in conversions:
            try:
                data = conversion.read(data)
            except ValueError as error:
                return self.fail(path, "value", str(error))
        bare = getattr(bare, "__supertype__", bare)
        origin = get_origin(bare)
        if origin in (Union, UnionType):
            return self.union(bare, data, path, limits)
        if bare is Any or bare is object:
            return data
        if origin is dict:
            return self.mapping(bare, data, path)
        if origin in (list, tuple, set):
            made = self.items(bare, data, path)
        elif isinstance(bare, type) and issubclass(bare, Declared):
            return self.struct(bare, data, path)
        else:
            made = _scalar(bare, data, strict=self.strict)
        if made is _FAILED:
            # the failed parts are already in `faults`
            return made if origin in (list, tuple, set) else self.mismatch(bare, data, path, limits)
        return made if _is_within(made, limits) else self.mismatch(bare, data, path, limits)

    def mismatch(self, hint: Any, data: Any, path: tuple[Step, ...], limits: Mapping[str, Any]) -> _FailedType:
        expected = _expectation(hint, limits)
        return self.fail(path, "type", f"expected {expected}, got {show(data)}", expected)

    def union(self, hint: Any, data: Any, path: tuple[Step, ...], limits: Mapping[str, Any]) -> Any:
        """Return the first alternative that the data fits unchanged, else the first that it can be converted to."""
        arms = [arm for arm in get_args(hint) if arm is not NoneType]
        if data is None and len(arms) < len(get_args(hint)):
            return None
        if len(arms) == 1:
            return self.value(arms[0], data, path, limits)
        tried: list[DecodeProblem] = []
        for strict in (True,) if self.strict else (True, False):
            tried = []
            for arm in arms:
                attempt = _Walk(strict=strict)
                made = attempt.value(arm, data, path, limits)
                if not attempt.faults:
                    return made
                tried.extend(attempt.faults)
        # Report the alternative that was decoded furthest: it is probably the intended one.
        deeper = [fault for fault in tried if len(fault.path) > len(path)]
        if deeper or tried[0].kind == "value":
            self.faults.extend(deeper or tried[:1])
            return _FAILED
        return self.mismatch(hint, data, path, limits)

    def items(self, hint: Any, data: Any, path: tuple[Step, ...]) -> Any:
        container = get_origin(hint)
        if not isinstance(data, (list, tuple)):
            return self.mismatch(hint, data, path, {})
        before = len(self.faults)
        (item, *_) = get_args(hint)
        made = [self.value(item, each, (*path, index), {}) for index, each in enumerate(data)]
        return _FAILED if len(self.faults) > before else container(made)

    def mapping(self, hint: Any, data: Any, path: tuple[Step, ...]) -> Any:
        if not isinstance(data, Mapping):
            return self.mismatch(hint, data, path, {})
        before = len(self.faults)
        key_type, value_type = get_args(hint)
        made = {
            self.value(key_type, key, (*path, key), {}): self.value(value_type, each, (*path, key), {})
            for key, each in data.items()
        }
        return _FAILED if len(self.faults) > before else made

    def struct(self, struct: type[Declared], data: Any, path: tuple[Step, ...]) -> Any:
        if isinstance(data, struct):
            return data
        data = struct._prepare(data)  # noqa: SLF001 - a hook for subclasses, called here only
        if not isinstance(data, Mapping):
            return self.mismatch(struct, data, path, {})
        before = len(self.faults)
        values: dict[str, Any] = {}
        used: set[str] = set()
        for field, names in _names_of_fields(struct):
            for key in names:
                if key in data:
                    used.add(key)
                    values[field.attribute] = self.field(field, data[key], (*path, key))
                    break
            else:
                if field.is_required:
                    self.fail((*path, field.key), "missing", "is required")
        if struct.unknown_keys == "keep":
            values["other_keys"] = {key: each for key, each in data.items() if key not in used}
        elif struct.unknown_keys == "forbid":
            for key in data:
                if key not in used:
                    known = ", ".join(fields_of(struct)) or "nothing"
                    self.fail((*path, key), "unknown", f"is not known; known: {known}")
        if len(self.faults) > before:
            return _FAILED
        made = struct(**values)
        mark_set(made, frozenset(values))
        try:
            made._check()  # noqa: SLF001 - a hook for subclasses, called here only
        except ValueError as error:
            return self.fail(path, "value", str(error))
        return made

    def field(self, field: Field, data: Any, path: tuple[Step, ...]) -> Any:
        made = self.value(field.type, data, path, field.info.limits)
        if made is not _FAILED and field.info.check is not None:
            try:
                field.info.check(made)
            except ValueError as error:
                return self.fail(path, "value", str(error))
        return made


@cache
def _names_of_fields(struct: type[Declared]) -> tuple[tuple[Field, tuple[str, ...]], ...]:
    """Return the fields of a struct, each with its names in the data; the first that is there counts."""
    return tuple(
        (field, (field.key, *([field.attribute] if struct.accepts_attribute_names else []), *field.info.other_names))
        for field in fields_of(struct).values()
    )


def _scalar(hint: Any, data: Any, *, strict: bool) -> Any:
    """Decode a value that is not a container; return `_FAILED` if the data does not fit."""
    if get_origin(hint) is Literal:
        return next((each for each in get_args(hint) if each == data and type(each) is type(data)), _FAILED)
    if hint is str:
        return data if isinstance(data, str) else _FAILED
    if hint in (bool, int, float):
        # In Python a bool is an int; in data it is not.
        if type(data) is hint or (hint is float and type(data) is int):
            return hint(data)
        return _FAILED if strict else _CONVERSIONS[hint](data)
    if isinstance(hint, type) and isinstance(data, hint):
        return data
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return next((member for member in hint if member.value == data), _FAILED)
    return _FAILED


def _to_bool(data: Any) -> Any:
    if isinstance(data, str):
        return _TRUTH.get(data.strip().lower(), _FAILED)
    return bool(data) if isinstance(data, (int, float)) and data in (0, 1) else _FAILED


def _to_int(data: Any) -> Any:
    if isinstance(data, str):
        return int(data) if _WHOLE_NUMBER.fullmatch(data.strip()) else _FAILED
    is_whole = isinstance(data, (bool, float)) and math.isfinite(data) and data == int(data)
    return int(data) if is_whole else _FAILED


def _to_float(data: Any) -> Any:
    try:
        return float(data) if isinstance(data, (str, bool)) else _FAILED
    except ValueError:
        return _FAILED


_CONVERSIONS: dict[Any, Callable[[Any], Any]] = {bool: _to_bool, int: _to_int, float: _to_float}


def _is_within(value: Any, limits: Mapping[str, Any]) -> bool:
    for name, bound in limits.items():
        match name:
            case "ge":
                fits = value >= bound
            case "gt":
                fits = value > bound
            case "le":
                fits = value <= bound
            case "lt":
                fits = value < bound
            case "min_length":
                fits = len(value) >= bound
            case "max_length":
                fits = len(value) <= bound
            case "pattern":
                # `$` in Python also matches before a final newline.
                ended = rf"{bound[:-1]}\Z" if bound.endswith("$") else bound
                fits = re.search(ended, value) is not None
            case _:
                raise TypeError(f"{name} is not a limit")
        if not fits:
            return False
    return True


def _expectation(hint: Any, limits: Mapping[str, Any]) -> str:
    if "pattern" in limits:
        return f"text that matches {limits['pattern']}"
    lengths = {"min_length": "at least", "max_length": "at most"}
    counted = [f"{name} {limits[limit]}" for limit, name in lengths.items() if limit in limits]
    unit = "characters" if hint is str else "items"
    return describe(hint, limits) + (f" of {' and '.join(counted)} {unit}" if counted else "")


def show(value: object) -> str:
    """Format a value for an error message, shortened."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
