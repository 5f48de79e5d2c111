"""All attempts, by name."""

from __future__ import annotations

from tests.sandbox.probes import defaults, files, kernel, kernel_files, leftovers, limits, network, processes
from tests.sandbox.probes.attempts import PROBES

GROUPS = (defaults, files, kernel, kernel_files, leftovers, limits, network, processes)

__all__ = ["GROUPS", "PROBES"]
