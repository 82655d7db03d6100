"""Shows how far long work is."""

from __future__ import annotations

import sys

import click

from holdfast.environment import Environment
from holdfast.terminal.lines import print_words

LINE_EVERY_S = 5.0
"""How often progress is printed where no terminal can show it on one line."""


class Meter:
    """Shows progress on standard error: on one line of a terminal, or else as a line every few seconds."""

    def __init__(self, as_json: bool) -> None:
        self._is_shown, self._is_terminal = not as_json, sys.stderr.isatty()
        self._clock = Environment().monotonic
        self._at = self._clock()
        self._width = 0

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def show(self, words: str) -> None:
        if not self._is_shown:
            return
        if self._is_terminal:
            click.echo(f"\r{words.ljust(self._width)}", nl=False, err=True)
            self._width = len(words)
        elif self._clock() - self._at >= LINE_EVERY_S:
            self._at = self._clock()
            print_words(words, dim=True, err=True)

    def end(self) -> None:
        """Remove the line."""
        if self._width:
            click.echo(f"\r{' ' * self._width}\r", nl=False, err=True)
            self._width = 0
