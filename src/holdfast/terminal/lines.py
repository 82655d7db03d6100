"""Lines on the terminal without a terminal library: words, in colours or not, and JSON. What comes from rows is made visible."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from holdfast.safe_text import visible, visible_json


def print_words(
    text: str = "",
    colour: str | None = None,
    *,
    bold: bool = False,
    dim: bool = False,
    end: bool = True,
    err: bool = False,
) -> None:
    """Print, in colours when there is a terminal that wants them. NO_COLOR is respected."""
    plain = (colour is None and not bold and not dim) or os.environ.get("NO_COLOR")
    if plain:
        click.echo(visible(text), nl=end, err=err)
    else:
        click.secho(visible(text), fg=colour, bold=bold or None, dim=dim or None, nl=end, err=err)


def json_document(value: Any, indent: int | None = None) -> str:
    """A value as JSON that a script can parse and a terminal does not obey."""
    return visible_json(json.dumps(value, ensure_ascii=False, indent=indent))
