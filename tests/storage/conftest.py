"""A folder with something outside of it, opened with either way of resolving paths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retinue.storage.files import Root
from retinue.storage.files.openat import Resolver, best_resolver

NOBODY = 65534


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_bytes(b"outside secret")
    return folder


@pytest.fixture(params=list(Resolver), ids=lambda resolver: str(resolver.value))
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Root]:
    resolver: Resolver = request.param
    if resolver is Resolver.KERNEL and best_resolver() is not Resolver.KERNEL:
        pytest.skip("this kernel has no openat2")
    with Root.open(tmp_path / "root", create=True, resolver=resolver) as opened:
        yield opened


@contextmanager
def without_privileges() -> Iterator[None]:
    """Act as a user whom file permissions bind; root ignores them."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
