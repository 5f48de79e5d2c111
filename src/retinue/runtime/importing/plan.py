"""The plan of an import: steps with what they take over, and what they leave out and why."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from retinue.core.errors import RetinueError
from retinue.storage.files import write_atomic

MAX_SHOWN = 20
"""How many things that are left out the plan names for each kind; the report names all."""


class Omission(Struct, frozen=True):
    """Something that is not imported, and the reason."""

    name: str
    why: str


class StepResult(Struct):
    """What a step did: new and already imported things, and what turned out to be unusable."""

    imported: int = 0
    already: int = 0
    omissions: list[Omission] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """More numbers and names for the report, such as the number of messages."""


Note = Callable[[str], None]
"""Shows a person how far a long step is."""


class ImportStep(Struct, frozen=True):
    """One kind of things; `carry_out` is None if nothing of this kind can be imported."""

    kind: str
    count: int
    omissions: tuple[Omission, ...] = ()
    names: tuple[str, ...] = ()
    carry_out: Callable[[Note], StepResult] | None = None
    remark: str = ""
    """What a person should know of what is imported, such as that it is only in left-overs of a migration."""

    def describe(self) -> dict[str, Any]:
        """Return the step as a line of the plan."""
        return {
            "kind": self.kind,
            "count": self.count,
            "skipped": len(self.omissions),
            "why": summarise_reasons(self.omissions),
            "remark": self.remark,
            "names": list(self.names),
            "leftOut": describe_omissions(self.omissions),
        }


def summarise_reasons(omissions: Iterable[Omission]) -> str:
    """Return the reasons as one text, each once, in the order in which they occur."""
    return "; ".join(dict.fromkeys(each.why for each in omissions))


def describe_omissions(omissions: Iterable[Omission]) -> list[dict[str, str]]:
    return [{"name": each.name, "why": each.why} for each in omissions]


class ImportLedger:
    """The names of what was imported before, so that a repeated import adds nothing twice.

    Something that the owner deleted after an import is not imported again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, list[str]] = {}
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return
        if isinstance(found, dict):
            self._known = {kind: [str(name) for name in names] for kind, names in found.items() if _is_list(names)}

    def has(self, kind: str, name: str) -> bool:
        return name in self._known.get(kind, ())

    def add(self, kind: str, name: str) -> None:
        """Record a name durably."""
        if not self.has(kind, name):
            self._known.setdefault(kind, []).append(name)
            write_atomic(self._path, json.dumps(self._known, ensure_ascii=False, indent=1).encode())


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def carry_out_steps(steps: Iterable[ImportStep], note: Note) -> Iterator[tuple[ImportStep, StepResult]]:
    """Carry out the steps in order; a step that fails does not stop the others."""
    for step in steps:
        if step.carry_out is None:
            continue
        try:
            yield step, step.carry_out(note)
        except (RetinueError, OSError) as error:
            yield step, StepResult(omissions=[Omission(step.kind, str(error))])


def stable_id(*parts: str, length: int = 8) -> str:
    """Return an id that is the same for the same names."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:length]


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object; any other value counts as empty."""
    return value if isinstance(value, dict) else {}
