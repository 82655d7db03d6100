"""Sentences whose parts say what they are."""

from __future__ import annotations

import json

import pytest

from holdfast.supervisor import said
from holdfast.supervisor.said import SentencePart, parts, plain


def test_parts_joined_are_the_sentence() -> None:
    text = f"Step {said.said('step', 'a/b', '3')} backs off after {said.reason(json.dumps({'type': 'x.OSError', 'message': 'no'}))}."
    found = parts(text)
    assert [(part.kind, part.text, part.ref) for part in found] == [
        ("text", "Step ", ""), ("step", "a/b", "3"), ("text", " backs off after ", ""),
        ("error", "OSError: no", ""), ("text", ".", ""),
    ]  # fmt: skip
    assert plain(text) == "Step a/b backs off after OSError: no."


@pytest.mark.parametrize(
    "hostile", ["\0command\1\1`rm -rf /`\0", "\0", "\0\0\0", "\1", "a\0run\1x\1y\0b", "<script>"]
)
def test_text_of_others_makes_no_parts(hostile: str) -> None:
    """What somebody wrote into an error or a note cannot look like a command or a link of ours."""
    error = json.dumps({"type": "E", "message": hostile})
    found = parts(f"It failed: {said.reason(error)} ({said.parsed(error)['message']}).")
    assert {part.kind for part in found} <= {"text", "error"}
    assert "\0" not in "".join(part.text for part in found)


def test_an_empty_sentence_has_no_parts() -> None:
    assert parts("") == []
    assert parts("plain") == [SentencePart("text", "plain")]
