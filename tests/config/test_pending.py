"""Every accepted key changes something; those that do not yet are marked, and their number only shrinks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import retinue
from retinue.config.keys import Key, every_key
from retinue.config.schema import Config

PACKAGE = Path(retinue.__file__).parent

MOST_PENDING = 8
"""The number of keys that were pending when this was last changed. Lower it with every key that comes to life.

Two are keys of OpenClaw's MCP servers that only Codex and its sign-ins read; its sections would not validate otherwise.
"""

READ_DYNAMICALLY = {
    # What a configured identity leaves out is taken from IDENTITY.md fact by fact, in a loop over the names.
    "agents.list[].identity.creature",
    "agents.list[].identity.vibe",
    "agents.list[].identity.theme",
    # A property of their section reads them.
    "agents.defaults.sandbox.workspaceAccess",
    "agents.list[].sandbox.workspaceAccess",
}


def leaves() -> list[Key]:
    return [key for key in every_key(Config) if key.shape.is_leaf]


def attributes_read() -> set[str]:
    """The names of all attributes that the program reads, outside the places that only declare settings."""
    names = set()
    for file in PACKAGE.rglob("*.py"):
        declares = file.name == "settings.py" or file.parent.name == "sections" or "bundled" in file.parts
        if not declares:
            tree = ast.parse(file.read_text("utf-8"))
            names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return names


def test_the_number_of_pending_keys_only_shrinks() -> None:
    pending = [key.path for key in leaves() if key.pending]
    assert all(len(key.pending) > 10 for key in leaves() if key.pending), "each needs a reason"
    assert len(pending) <= MOST_PENDING, "a key was added that changes nothing; use it, or say why here"


@pytest.mark.slow
def test_every_key_that_is_not_pending_is_read_somewhere() -> None:
    read = attributes_read()
    unread = {key.path for key in leaves() if not key.pending and key.field and key.field.attribute not in read}
    assert unread == READ_DYNAMICALLY & unread, "mark these keys as pending or use them"


def test_no_exception_is_left_over() -> None:
    known = {key.path for key in leaves() if not key.pending}
    assert known >= READ_DYNAMICALLY
