"""Measures the structure of the source, and with `--check` fails if it breaks one of the rules that keep it readable.

Bundled skills are not counted: they are programs of their own.

- `usedOnce`: the share of functions that are private and named only once besides their definition.
- `importShare`: the share of lines that belong to import statements.
- `cycles`: the sizes of groups of modules that import each other, counting imports inside functions, but not those
  under `TYPE_CHECKING`.
- `duplicateNames`: public classes at the top of a module whose name another module uses too, `wire` aside.
- `largestBag`: the class with the most collaborators.
- `trip`: the package's own functions, and their files, on the stack when `retinue agent` asks the model.

A collaborator is a field that holds something to call rather than something to read. Fields are the annotated names of
a class body, and attributes that `__init__` sets to one of its annotated parameters. The type decides, without `None`
and wrappers such as `Annotated` and `Final`:

- a callable (`Callable`, an alias of one, or a Protocol) is a collaborator;
- a class of ours is one unless it is a value: an enumeration, an exception, a NamedTuple or TypedDict, a settings
  model, or a Struct or frozen dataclass without a collaborator of its own;
- a class of another package is one if it performs work for its holder (`WORKING`);
- everything else is not: primitives, the standard library's values, locks, events, and containers of anything, which
  are the object's own state.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "retinue"
MAX_MODULES, MAX_COLLABORATORS, SHARD_LINES = 20, 8, 60
FREE_FOLDERS = frozenset({"cli", "wire", "methods"})
LISTS = ("cycles", "names", "folders", "bags", "shards", "once")

CALLABLES = frozenset({"Callable", "collections.abc.Callable", "typing.Callable"})
WRAPPERS = frozenset({"Annotated", "Final", "Optional", "Required", "NotRequired"})
VALUE_BASES = frozenset(
    {"Enum", "StrEnum", "IntEnum", "Flag", "IntFlag", "NamedTuple", "TypedDict", "BaseModel", "Exception"}
)
WORKING = frozenset(
    {"TaskGroup", "AsyncClient", "Client", "Popen", "Process", "Console", "PluginManager", "Connection"}
)
"""Classes of other packages that perform work for the object that holds them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def walk_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a node, with the handlers and cases between them."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, part, ()):
            yield child
            yield from walk_statements(child)


@dataclass(eq=False)
class Module:
    """One source file."""

    name: str
    path: Path
    text: str
    is_package: bool

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def statements(self) -> list[ast.AST]:
        """Return all statements. Imports are among them, and expressions are most of what `ast.walk` visits."""
        return list(walk_statements(self.tree))

    @cached_property
    def names(self) -> dict[str, str]:
        """Return the full dotted name of each imported name."""
        found: dict[str, str] = {}
        for node in self.statements:
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {alias.asname or alias.name: alias.name for alias in node.names}
        return found

    def imported(self, known: Iterable[str]) -> set[str]:
        """Return the modules among `known` that this one imports when it runs."""
        typing_only = {
            id(inner)
            for node in self.statements
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for statement in node.body
            for inner in (statement, *walk_statements(statement))
        }
        found = set()
        for node in self.statements:
            if id(node) in typing_only:
                continue
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
                if any(f"{node.module}.{alias.name}" in known for alias in node.names):
                    found.discard(node.module)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        return (found & set(known)) - {self.name}


@dataclass(eq=False)
class Class:
    """A class, and what it holds."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return f"{self.module.name}.{self.node.name}"

    @property
    def bases(self) -> set[str]:
        return {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in self.node.bases}

    @property
    def is_frozen(self) -> bool:
        return any("frozen=True" in ast.unparse(each) for each in self.node.decorator_list)

    def fields(self) -> Iterator[tuple[str, ast.expr]]:
        """Yield the names and annotated types of the fields of an object of the class."""
        for statement in self.node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                if "ClassVar" not in ast.unparse(statement.annotation):
                    yield statement.target.id, statement.annotation
            elif isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                yield from _kept_parameters(statement)


def _kept_parameters(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parameters that a constructor keeps as attributes, with their types."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    types = {argument.arg: argument.annotation for argument in arguments}
    for node in ast.walk(function):
        match node:
            case ast.Assign([ast.Attribute(ast.Name("self"), name)], ast.Name(given)):
                annotation = types.get(given)
            case ast.AnnAssign(ast.Attribute(ast.Name("self"), name), annotation, ast.Name(given)) if given in types:
                pass
            case _:
                continue
        if annotation is not None:
            yield name, annotation


@dataclass
class Source:
    """All modules of the package."""

    folder: Path
    modules: dict[str, Module]
    _values: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Source:
        """Read the package in a folder."""
        modules = {}
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            if "bundled" in parts:
                continue
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            modules[name] = Module(name, path, path.read_text(encoding="utf-8"), is_package)
        return cls(folder, modules)

    @cached_property
    def classes(self) -> dict[str, Class]:
        """Return the classes at the top of modules, by their full names."""
        found = {}
        for module in self.modules.values():
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef):
                    found[f"{module.name}.{node.name}"] = Class(module, node)
        return found

    @cached_property
    def aliases(self) -> dict[str, tuple[Module, ast.expr]]:
        """Return the names at the top of modules that stand for another type."""
        found: dict[str, tuple[Module, ast.expr]] = {}
        for module in self.modules.values():
            for node in module.tree.body:
                match node:
                    case ast.Assign([ast.Name(name)], ast.Subscript() | ast.BinOp() | ast.Name() as value):
                        found[f"{module.name}.{name}"] = (module, value)
                    case ast.AnnAssign(ast.Name(name), ast.Name("TypeAlias"), ast.expr() as value):
                        found[f"{module.name}.{name}"] = (module, value)
        return found

    def resolve(self, module: Module, name: str) -> str:
        """Return the full name of what a name means in a module; re-exports of packages are followed."""
        head, _, rest = name.partition(".")
        full = module.names.get(head, f"{module.name}.{head}") + (f".{rest}" if rest else "")
        owner, _, last = full.rpartition(".")
        package = self.modules.get(owner)
        if full not in self.classes and full not in self.aliases and package is not None and last in package.names:
            return package.names[last]
        return full

    def is_collaborator(self, module: Module, annotation: ast.expr, depth: int = 0) -> bool:
        """Return whether a field of this type holds something to call."""
        if depth > 8:
            return False
        match annotation:
            case ast.Constant(str(text)):
                return self.is_collaborator(module, ast.parse(text, mode="eval").body, depth + 1)
            case ast.BinOp(left, ast.BitOr(), right):
                return any(self.is_collaborator(module, side, depth + 1) for side in (left, right))
            case ast.Subscript(value, inner) if ast.unparse(value).rpartition(".")[2] in WRAPPERS:
                first = inner.elts[0] if isinstance(inner, ast.Tuple) else inner
                return self.is_collaborator(module, first, depth + 1)
            case ast.Subscript(value):
                return self.is_collaborator(module, value, depth + 1)
            case ast.Name() | ast.Attribute():
                return self._names_collaborator(module, ast.unparse(annotation), depth)
            case _:
                return False

    def _names_collaborator(self, module: Module, written: str, depth: int) -> bool:
        if written in CALLABLES:
            return True
        full = self.resolve(module, written)
        if full in self.classes:
            return not self._is_value(full)
        if full in self.aliases:
            owner, value = self.aliases[full]
            return self.is_collaborator(owner, value, depth + 1)
        return not full.startswith(f"{self.folder.name}.") and full.rpartition(".")[2] in WORKING

    def _is_value(self, name: str) -> bool:
        if name not in self._values:
            self._values[name] = True  # a class that holds itself, as a tree does, can be a value
            found = self.classes[name]
            bases = {self.resolve(found.module, ast.unparse(base).partition("[")[0]) for base in found.node.bases}
            inherited = any(base in self.classes and self._is_value(base) for base in bases)
            is_plain = bool(found.bases & VALUE_BASES) or any(base.endswith(("Error", "Exception")) for base in bases)
            is_record = (inherited or found.is_frozen or "Struct" in found.bases) and not self.collaborators(found)
            self._values[name] = "Protocol" not in found.bases and (is_plain or is_record)
        return self._values[name]

    def collaborators(self, found: Class) -> list[str]:
        """Return the fields of a class that are collaborators."""
        named = dict(found.fields())
        return [name for name, annotation in named.items() if self.is_collaborator(found.module, annotation)]

    def cycles(self) -> list[list[str]]:
        """Return the groups of modules that import each other, the largest first."""
        graph = {name: module.imported(self.modules) for name, module in self.modules.items()}
        return sorted((sorted(group) for group in _components(graph) if len(group) > 1), key=len, reverse=True)

    def duplicate_names(self) -> dict[str, list[str]]:
        places: dict[str, list[str]] = {}
        for found in self.classes.values():
            if not found.node.name.startswith("_") and "wire" not in found.module.name.split("."):
                places.setdefault(found.node.name, []).append(found.module.name)
        return {name: where for name, where in sorted(places.items()) if len(where) > 1}

    def folders(self) -> Counter[str]:
        """Count the modules of each folder."""
        paths = (module.path for module in self.modules.values() if not module.is_package)
        return Counter(path.parent.relative_to(self.folder).as_posix() for path in paths)

    def bags(self) -> list[tuple[int, str, list[str]]]:
        """Return the classes with the number of their collaborators, the most first."""
        held = ((found.name, self.collaborators(found)) for found in self.classes.values())
        return sorted(((len(names), name, names) for name, names in held if names), reverse=True)

    def used_once(self) -> tuple[list[str], int]:
        """Return the private functions with a single use, and the number of all functions."""
        found, total = [], 0
        for module in self.modules.values():
            words = Counter(re.findall(r"\b_[a-z]\w*", module.text))
            functions = [node for node in ast.walk(module.tree) if isinstance(node, Function)]
            total += len(functions)
            found += [f"{module.name}.{node.name}" for node in functions if words[node.name] == 2]
        return sorted(found), total

    def shards(self) -> list[str]:
        modules = (module for module in self.modules.values() if not module.is_package)
        return [module.name for module in modules if module.text.count("\n") < SHARD_LINES]


def _components(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield the strongly connected components: a node belongs to the group of all it reaches that reach it back."""
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        order.extend(_visit(start, graph, seen))
    backwards: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            backwards[target].add(name)
    seen = set()
    for start in reversed(order):
        if group := list(_visit(start, backwards, seen)):
            yield group


def _visit(start: str, graph: dict[str, set[str]], seen: set[str]) -> Iterator[str]:
    """Yield everything not yet seen that is reached from `start`, each after what it reaches itself."""
    if start in seen:
        return
    seen.add(start)
    path = [(start, iter(sorted(graph[start])))]
    while path:
        name, targets = path[-1]
        following = next((target for target in targets if target not in seen), None)
        if following is None:
            yield name
            path.pop()
        else:
            seen.add(following)
            path.append((following, iter(sorted(graph[following]))))


def measure(source: Source) -> dict[str, Any]:
    """Return all numbers except the trip, which needs a process."""
    lines = sum(module.text.count("\n") for module in source.modules.values())
    imports = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for module in source.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    once, functions = source.used_once()
    folder, modules = source.folders().most_common(1)[0]
    count, bag, _ = source.bags()[0]
    return {
        "lines": lines,
        "modules": len(source.modules),
        "usedOnce": round(len(once) / functions, 3),
        "importShare": round(imports / lines, 3),
        "cycles": [len(group) for group in source.cycles()],
        "duplicateNames": len(source.duplicate_names()),
        "largestFolder": [folder, modules],
        "largestBag": [bag, count],
    }


def measure_trip() -> dict[str, int]:
    """Trace one message in a separate process; return the length of its path."""
    sys.path.insert(0, str(SOURCE.parent))
    from retinue.testing.message_path import trace_message

    with tempfile.TemporaryDirectory() as place:
        path = trace_message(Path(place))
    return {"frames": path.frames, "files": len(path.files)}


def listing(source: Source, what: str) -> list[str]:
    match what:
        case "cycles":
            return [" ".join(group) for group in source.cycles()]
        case "names":
            return [f"{name}: {', '.join(where)}" for name, where in source.duplicate_names().items()]
        case "folders":
            return [f"{count} {folder}" for folder, count in source.folders().most_common() if count > MAX_MODULES]
        case "bags":
            return [f"{count} {name}: {', '.join(held)}" for count, name, held in source.bags() if count > 4]
        case "shards":
            return source.shards()
        case _:
            return source.used_once()[0]


def find_violations(source: Source) -> list[str]:
    """Return a message about each rule that the source breaks."""
    return [
        *(f"These modules import each other in a cycle: {' '.join(group)}" for group in source.cycles()),
        *(
            f"The class name {name} is defined in several modules: {', '.join(where)}. Rename all but one."
            for name, where in source.duplicate_names().items()
        ),
        *(
            f"The folder {folder} has {count} modules; the limit is {MAX_MODULES}. Group them into packages."
            for folder, count in source.folders().most_common()
            if count > MAX_MODULES and Path(folder).name not in FREE_FOLDERS
        ),
        *(
            f"{name} holds {count} collaborators; the limit is {MAX_COLLABORATORS}: {', '.join(held)}."
            for count, name, held in source.bags()
            if count > MAX_COLLABORATORS
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the structure of the source.")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--list", choices=LISTS, help="print the items that a number counts")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a rule is broken")
    parser.add_argument("--source", type=Path, default=SOURCE, help="folder of the package (default: Retinue's)")
    options = parser.parse_args()
    source = Source.read(options.source.resolve())
    if options.list:
        print("\n".join(listing(source, options.list)))
        return 0
    if options.check:
        violations = find_violations(source)
        print("\n".join(violations) or "No structure rule is broken.", file=sys.stderr if violations else sys.stdout)
        return 1 if violations else 0
    table = {**measure(source), "trip": measure_trip()}
    print(json.dumps(table) if options.json else "\n".join(f"{name:15} {value}" for name, value in table.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
