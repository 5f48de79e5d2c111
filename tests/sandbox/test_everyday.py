"""Everyday commands work in the sandbox as they do without it."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from bench.everyday import NOBODY, compare, read_commands

from retinue.sandbox.confinement import SandboxUnavailable

USERS = [
    pytest.param(os.getuid(), id="as-the-user"),
    *([pytest.param(NOBODY, id="as-nobody")] if os.getuid() == 0 else []),
]


def test_there_are_a_hundred_commands_in_each_group() -> None:
    groups = Counter(group for group, _ in read_commands())
    assert groups == dict.fromkeys(("read", "search", "build and test", "git", "text processing"), 100)


@pytest.mark.slow
@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_sample_of_everyday_commands_prints_the_same_without_approval(backend: str, uid: int) -> None:
    """`python -m bench sandbox --full` runs all of them."""
    try:
        found = compare(read_commands()[7::20], backend, uid)
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    assert (found.commands, found.asked, found.leaked) == (25, 0, ())
    assert len(found.differences) <= 1, found.differences
