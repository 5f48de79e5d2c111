"""The gateways of the gateway's own tests."""

from __future__ import annotations

from tests.gateway.conftest import hall as hall
