"""Lines on the terminal without a terminal library: text with or without colours, and JSON. Control characters in text
from the store are escaped, so that a terminal shows them and does not obey them. Of a text with several lines, all but the
first are indented, so that none looks like a line of ours."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from holdfast.safe_text import visible_entry, visible_json


def print_words(
    text: str = "",
    colour: str | None = None,
    *,
    bold: bool = False,
    dim: bool = False,
    end: bool = True,
    err: bool = False,
) -> None:
    """Print a text, in colours if the output is a terminal and NO_COLOR is not set."""
    plain = (colour is None and not bold and not dim) or os.environ.get("NO_COLOR")
    if plain:
        click.echo(visible_entry(text), nl=end, err=err)
    else:
        click.secho(visible_entry(text), fg=colour, bold=bold or None, dim=dim or None, nl=end, err=err)


def json_document(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that a script can parse and that a terminal shows and does not obey."""
    return visible_json(json.dumps(value, ensure_ascii=False, indent=indent))
