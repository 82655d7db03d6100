"""Coloured words without a terminal library: for single lines. NO_COLOR is respected."""

from __future__ import annotations

import os

import click


def print_words(
    text: str,
    colour: str | None = None,
    *,
    bold: bool = False,
    dim: bool = False,
    end: bool = True,
    err: bool = False,
) -> None:
    """Print, in colours when there is a terminal that wants them."""
    if os.environ.get("NO_COLOR"):
        click.echo(text, nl=end, err=err)
    else:
        click.secho(text, fg=colour, bold=bold or None, dim=dim or None, nl=end, err=err)
