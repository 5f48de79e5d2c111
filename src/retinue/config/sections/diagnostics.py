"""Settings of diagnostics."""

from __future__ import annotations

from retinue.providers.settings import SecretValue
from retinue.settings import Settings, key


class OtelSettings(Settings):
    """Traces for an OpenTelemetry collector; needs the extra `otel`. Traces never contain message texts."""

    enabled: bool = key(False, reload="restart")
    """Whether traces are sent."""
    endpoint: str = key("http://127.0.0.1:4318/v1/traces", reload="restart", pattern=r"^https?://")
    """The URL of the collector (OTLP over HTTP)."""
    headers: dict[str, SecretValue] = key({}, reload="restart")
    """Headers for the collector, such as a key."""
    service_name: str = key("retinue", reload="restart")
    """The service name in the traces."""
    sample_rate: float = key(1.0, reload="restart", ge=0, le=1)
    """Fraction of turns that are traced."""


class DiagnosticsSettings(Settings):
    """Diagnostics for other programs."""

    otel: OtelSettings = key(OtelSettings)
    """Traces for an OpenTelemetry collector."""
