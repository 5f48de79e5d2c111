"""The published documents of the protocol match the code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retinue.cli.main import run
from retinue.gateway.schema_docs import make_asyncapi, make_openapi, render_asyncapi, render_methods, render_openapi
from retinue.wire.methods import METHODS

DOCS = Path(__file__).parents[2] / "docs" / "reference"


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, below in value.items():
            if name == "$ref":
                yield below
            else:
                yield from references(below)
    elif isinstance(value, list):
        for below in value:
            yield from references(below)


@pytest.mark.parametrize("document", [make_openapi(), make_asyncapi()], ids=["openapi", "asyncapi"])
def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for reference in set(references(document)):
        found: Any = document
        for step in reference.removeprefix("#/").split("/"):
            found = found[step.replace("~1", "/")]


def test_every_method_can_be_called_over_http() -> None:
    paths = make_openapi()["paths"]
    assert {f"/rpc/{name}" for name in METHODS} <= paths.keys()
    assert {"/healthz", "/readyz", "/metrics", "/pair"} <= paths.keys()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gateway-methods.md", render_methods()),
        ("gateway-asyncapi.json", render_asyncapi()),
        ("gateway-openapi.json", render_openapi()),
    ],
    ids=["methods", "asyncapi", "openapi"],
)
def test_the_committed_documents_are_current(name: str, text: str) -> None:
    assert (DOCS / name).read_text("utf-8") == text, "run `make docs`"
    if name.endswith(".json"):
        json.loads(text)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "made"), [("openapi", make_openapi()), ("asyncapi", make_asyncapi())])
def test_the_command_prints_them(form: str, made: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for flags in ([], ["--json"]):
        assert run(["gateway", "schema", "--format", form, *flags]) == 0
        assert json.loads(capsys.readouterr().out) == made
