#!/usr/bin/env python3
"""Scaffold a new Agent Skill, or check existing ones."""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

OPEN_KEYS = ("name", "description", "license", "compatibility", "allowed-tools", "metadata")
MAX_NAME, MAX_DESCRIPTION, MAX_COMPATIBILITY = 64, 1024, 500
GOOD_DESCRIPTION, GOOD_LINES = 160, 500
PLACEHOLDER = "Replace this line"
FENCE = re.compile(r"^```(?:sh|bash|shell)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
BASE_PATH = re.compile(r"\{baseDir\}/([\w./-]+)")
LINK = re.compile(r"\]\(([^)\s]+)\)")

BODY = """
# {title}

{placeholder}: one sentence on what this skill achieves.

## Commands

```sh
{command}
```

## How to work

1. {placeholder}: the first step, as an order.
2. {placeholder}: what to do when a command fails.
"""

SCRIPT = '''#!/usr/bin/env python3
"""{description}"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def describe(path: Path) -> dict[str, object]:
    return {{"file": str(path), "bytes": path.stat().st_size}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    try:
        result = describe(options.file)
    except OSError as failure:
        print(f"error: {{failure}}", file=sys.stderr)
        return 1
    print(json.dumps(result) if options.json else f"{{result['file']}}: {{result['bytes']}} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
'''


class SkillError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    skill: str
    level: str
    message: str


def name_problem(name: str) -> str:
    """Why a name is not allowed, or nothing."""
    name = unicodedata.normalize("NFKC", name)
    if not name or len(name) > MAX_NAME:
        return f"the name must have 1 to {MAX_NAME} characters"
    if name != name.lower() or not all(char.isalnum() or char == "-" for char in name):
        return f"the name {name!r} may only have lower-case letters, digits and hyphens"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        return f"the name {name!r} may not begin or end with a hyphen or have two in a row"
    return ""


def split_skill(text: str) -> tuple[list[str], str]:
    """Lines of the front matter, and the body."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise SkillError("SKILL.md must begin with a line of three hyphens")
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == "---":
            return lines[1:number], "\n".join(lines[number + 1 :])
    raise SkillError("the front matter is not closed by a line of three hyphens")


def scalar(text: str, key: str) -> str:
    """The value of a one-line scalar; what only lenient readers accept is an error."""
    if text[:1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            raise SkillError(f"the quotes of {key!r} are broken") from None
    if text[:1] == "'":
        if not re.fullmatch(r"'(?:[^']|'')*'", text):
            raise SkillError(f"the quotes of {key!r} are broken")
        return text[1:-1].replace("''", "'")
    if text[:1] and text[0] in "[{&*!%@`":
        raise SkillError(f"quote the value of {key!r}, or write it in block style: it begins with {text[0]!r}")
    if ": " in text or text.endswith(":") or " #" in text:
        raise SkillError(f"quote the value of {key!r}: it contains ': ' or ' #'")
    return text


def parse_front_matter(lines: list[str]) -> dict[str, str]:
    """Top-level keys with their text; nested blocks are only checked for block style."""
    values: dict[str, str] = {}
    current = ""
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise SkillError("indent the front matter with blanks, not tabs")
        if line[0] == " ":
            if not current:
                raise SkillError("the front matter begins with an indented line")
            if current == "metadata":
                nested = re.sub(r"^\s*(?:- )?(?:[\w-]+:(?:\s+|$))?", "", line)
                scalar(nested.strip(), current)
            else:
                values[current] = f"{values[current]} {line.strip()}".strip()
            continue
        parsed = re.fullmatch(r"([\w-]+):(?:[ ]+(.*))?", line.rstrip())
        if parsed is None:
            raise SkillError(f"cannot read the front matter line {line.strip()!r}")
        current = parsed[1]
        if current in values:
            raise SkillError(f"the key {current!r} stands twice in the front matter")
        value = (parsed[2] or "").strip()
        values[current] = "" if re.fullmatch(r"[>|][+-]?", value) else scalar(value, current)
    return values


def check_keys(values: dict[str, str], folder: str) -> Iterator[tuple[str, str]]:
    for key in values:
        if key not in OPEN_KEYS:
            yield "warning", f"the key {key!r} is not part of the open format; put own keys under metadata"
    if problem := name_problem(values.get("name", "")):
        yield "error", problem
    elif values["name"] != folder:
        yield "error", f"the name {values['name']!r} must equal the folder's name {folder!r}"
    description = values.get("description", "")
    if not description or len(description) > MAX_DESCRIPTION:
        yield "error", f"the description must have 1 to {MAX_DESCRIPTION} characters"
    elif len(description) > GOOD_DESCRIPTION:
        yield "warning", f"the description has {len(description)} characters; it stands in every prompt: aim for 160"
    if description and not re.search(r"\b(use|when|before|for)\b", description, re.IGNORECASE):
        yield "warning", "the description does not say when to use the skill"
    if len(values.get("compatibility", "")) > MAX_COMPATIBILITY:
        yield "error", f"the compatibility must have at most {MAX_COMPATIBILITY} characters"


def check_body(body: str, folder: Path) -> Iterator[tuple[str, str]]:
    if not body.strip():
        yield "error", "the body is empty: write the instructions"
    if PLACEHOLDER in body:
        yield "warning", f"the body still has {PLACEHOLDER!r} from the scaffold"
    if len(body.split("\n")) > GOOD_LINES:
        yield "warning", f"the body has more than {GOOD_LINES} lines; move details to references/"
    links = [link.partition("#")[0] for link in LINK.findall(body) if not re.match(r"[a-z][a-z0-9+.-]*:|#", link)]
    named = [path.rstrip(".") for path in BASE_PATH.findall(body)]
    for path in dict.fromkeys([*named, *filter(None, links)]):
        target = (folder / path).resolve()
        if not target.is_relative_to(folder.resolve()):
            yield "error", f"{path} points out of the skill's folder"
        elif not target.exists():
            yield "error", f"{path} does not exist"
    bash = shutil.which("bash")
    for block in FENCE.findall(body) if bash else ():
        script = block.replace("{baseDir}", "/skill")
        done = subprocess.run([str(bash), "-n"], input=script, capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            yield "error", f"a shell example does not parse: {done.stderr.strip().splitlines()[0]}"


def check_files(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            yield "error", f"{relative} is a link that leaves the skill's folder"
        elif path.is_file() and relative.parts[0] == "scripts":
            data = path.read_bytes()
            if data.startswith(b"#!") and not os.access(path, os.X_OK):
                yield "error", f"{relative} has a #! line but is not executable"
            if path.suffix == ".py":
                try:
                    ast.parse(data, str(relative))
                except (SyntaxError, ValueError) as failure:
                    yield "error", f"{relative} is not valid Python: {failure}"


def check_skill(folder: Path) -> list[Finding]:
    """Everything that is wrong with one skill, errors and warnings."""
    # `check .` inside a skill's folder has to find the folder's name.
    folder = folder.resolve()
    found: list[tuple[str, str]] = []
    try:
        text = (folder / "SKILL.md").read_text(encoding="utf-8").replace("\r\n", "\n")
        front, body = split_skill(text)
        found += check_keys(parse_front_matter(front), folder.name)
        found += check_body(body, folder)
        found += check_files(folder)
    except FileNotFoundError:
        found.append(("error", f"there is no SKILL.md in {folder}"))
    except UnicodeDecodeError:
        found.append(("error", "SKILL.md is not UTF-8 text"))
    except (SkillError, OSError) as failure:
        found.append(("error", str(failure)))
    return [Finding(folder.name, level, message) for level, message in found]


def create_skill(options: argparse.Namespace) -> list[Finding]:
    if problem := name_problem(options.name):
        raise SkillError(problem)
    description = " ".join(options.description.split())
    if not description:
        raise SkillError("a skill needs a description: what it does and when to use it")
    folder: Path = options.dir / options.name
    script = folder / "scripts" / f"{options.name.replace('-', '_')}.py"
    needed = (["python3"] if options.script else []) + options.bin
    front = ["---", f"name: {options.name}", f"description: {json.dumps(description, ensure_ascii=False)}"]
    if needed:
        front += ["metadata:", "  retinue:", "    requires:", "      bins:"]
        front += [f"        - {program}" for program in dict.fromkeys(needed)]
    command = f"python3 {{baseDir}}/scripts/{script.name} input.txt" if options.script else "true"
    if options.bin and not options.script:
        command = f"{options.bin[0]} --help"
    title = options.name.replace("-", " ").capitalize()
    body = BODY.format(title=title, placeholder=PLACEHOLDER, command=command)
    try:
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("\n".join([*front, "---", body]), encoding="utf-8")
        if options.script:
            script.parent.mkdir()
            summary = description.replace("\\", "\\\\").replace('"', '\\"')
            script.write_text(SCRIPT.format(description=summary), encoding="utf-8")
            script.chmod(0o755)
    except FileExistsError:
        raise SkillError(f"{folder} exists already; choose another name or edit it") from None
    except OSError as failure:
        raise SkillError(f"cannot write {folder}: {failure}") from failure
    written = sorted(str(path) for path in folder.rglob("*") if path.is_file())
    return [Finding(options.name, "written", path) for path in written]


def check_skills(options: argparse.Namespace) -> list[Finding]:
    return [finding for folder in options.folders for finding in check_skill(folder)]


def program_name(text: str) -> str:
    if not re.fullmatch(r"[\w.+-]+", text):
        raise argparse.ArgumentTypeError("a program is named without a path")
    return text


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    new = commands.add_parser("new", parents=[shared], help="scaffold a skill")
    new.add_argument("name")
    new.add_argument("--description", required=True)
    new.add_argument("--dir", type=Path, default=Path("skills"), help="default: skills")
    new.add_argument("--script", action="store_true", help="with a Python script to start from")
    new.add_argument("--bin", type=program_name, action="append", default=[], help="a program that must be there")
    new.set_defaults(run=create_skill)

    check = commands.add_parser("check", parents=[shared], help="check skills")
    check.add_argument("folders", type=Path, nargs="+")
    check.set_defaults(run=check_skills)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        findings: list[Finding] = options.run(options)
    except SkillError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False, indent=2))
    else:
        lines = [f"{finding.skill}: {finding.level}: {finding.message}" for finding in findings]
        print("\n".join(lines) or "No problems found.")
    return int(any(finding.level == "error" for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
