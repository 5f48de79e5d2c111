"""A home to update, and a way to run commands in it."""

from __future__ import annotations

from tests.cli.conftest import home, retinue

__all__ = ["home", "retinue"]
