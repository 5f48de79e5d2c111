"""Regenerate the reference pages that come from the code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from retinue.config.explain import render_reference
from retinue.config.schema import Config
from retinue.gateway.schema_docs import render_asyncapi, render_methods, render_openapi

DOCS = Path(__file__).resolve().parent.parent / "docs"

PAGES: dict[str, Callable[[], str]] = {
    "reference/configuration.md": lambda: render_reference(Config),
    "reference/gateway-methods.md": render_methods,
    "reference/gateway-asyncapi.json": render_asyncapi,
    "reference/gateway-openapi.json": render_openapi,
}


def main() -> None:
    """Write every page that differs from what the code says."""
    for name, render in PAGES.items():
        page = DOCS / name
        text = render()
        if not page.exists() or page.read_text("utf-8") != text:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, "utf-8")
            print(f"docs/{name} rewritten")


if __name__ == "__main__":
    main()
