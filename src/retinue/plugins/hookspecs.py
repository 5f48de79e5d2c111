"""The pluggy hook specification: what a plugin can implement.

A plugin is a Python package with an entry point in the group `retinue`; the object it names implements these hooks.
"""

from __future__ import annotations

import pluggy

from retinue.core.extension import Registrar

NAME = "retinue"

hookspec = pluggy.HookspecMarker(NAME)
hookimpl = pluggy.HookimplMarker(NAME)


class Hooks:
    """The hooks that Retinue calls on a plugin."""

    @hookspec
    def retinue_register(self, register: Registrar) -> None:
        """Register tools, providers, skills, hooks and context engines.

        Runs once, at start; import nothing heavy here.
        """
