"""`retinue page`: facts about the control page."""

from __future__ import annotations

import click
import msgspec

from retinue.cli.common import Group, Invocation, pass_invocation


@click.group(cls=Group)
def page() -> None:
    pass


@page.command("info")
@pass_invocation
def info(invocation: Invocation) -> None:
    """Show whether the page was built, and its size as browsers receive it."""
    from retinue.gateway.page_files import describe_page, find_page

    facts = describe_page(find_page())

    def describe() -> str:
        if not facts.built:
            return "The page was not built. In a checkout, build it with `make page`; otherwise install Retinue again."
        return (
            f"The page of version {facts.version} has {facts.bytes / 1000:.0f} kB, "
            f"compressed {facts.gzip / 1000:.0f} kB; the chat needs {facts.first_view_gzip / 1000:.0f} kB of them."
        )

    invocation.show(msgspec.to_builtins(facts), describe)
