"""Imports what a turn imports when it needs it: clients are forked from a process that has done so once."""

from __future__ import annotations

import importlib

import anyio
import httpx2
import truststore

from retinue.plugins.builtin import TOOL_FAMILIES
from retinue.providers import http_client
from retinue.providers.apis import anthropic
from tests.faults import client

__all__ = ["anthropic", "anyio", "client", "http_client", "httpx2", "truststore"]

for target in TOOL_FAMILIES.values():
    importlib.import_module(target.partition(":")[0])
anyio.run(anyio.sleep, 0)  # imports the event loop's part of anyio
