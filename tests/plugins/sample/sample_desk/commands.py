"""A slash command and a command of the command line."""

from __future__ import annotations

import click

from retinue.core.extension import CommandCall


async def answer(call: CommandCall) -> str:
    return f"desk: {call.rest} for {'the owner' if call.is_owner else 'a guest'}"


@click.command()
@click.argument("word")
def cli(word: str) -> None:
    """Print a word."""
    click.echo(f"desk says {word}")
