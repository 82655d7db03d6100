"""Signed texts: only a holder of the key can write one, for one purpose, and in one spelling."""

from __future__ import annotations

import base64
import random

import pytest

from holdfast.access.signed_texts import digest, opened, signed

KEYS = {"2": b"k" * 32, "1": b"o" * 32}
PARTS = ("ask-1", "1000.000000", "person:anna", "2000")


def test_what_was_signed_is_read_again() -> None:
    """By whoever has the key, also if another one signs by now."""
    text = signed(KEYS, "ask", PARTS)
    assert opened(KEYS, "ask", text) == PARTS
    assert opened({"3": b"n" * 32, "2": b"k" * 32}, "ask", text) == PARTS
    assert opened({"2": b"x" * 32}, "ask", text) is None
    assert opened({}, "ask", text) is None
    assert opened(KEYS, "callback", text) is None


def test_10000_forged_texts_are_refused() -> None:
    """Changed, cut, extended and made up; other people, other keys, other spellings of the same bytes."""
    dice, text = random.Random(1), signed(KEYS, "ask", PARTS)
    content, name, mac = text.split(".")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
    other = base64.urlsafe_b64encode(b'["ask-1","1000.000000","person:eva","2000"]').decode().rstrip("=")
    forged = [
        f"{other}.{name}.{mac}",
        f"{content}.1.{mac}",
        f"{content}.{name}.{mac}=",
        f"{content}=.{name}.{mac}",
        f"{content}..{mac}",
        f"{content}.{name}.",
        f" {text}",
        f"{text}\n",
        text.upper(),
        "",
        "é" * 30,
    ]
    while len(forged) < 10_000:
        draft = list(text)
        for _ in range(dice.randint(1, 3)):
            draft[dice.randrange(len(draft))] = dice.choice(letters)
        cut = dice.choice([len(draft), len(draft), dice.randrange(len(draft))])
        made = "".join(draft[:cut])
        if made != text:
            forged.append(made)
    assert [one for one in forged if opened(KEYS, "ask", one) is not None] == []


@pytest.mark.parametrize("purpose", ["ask", "callback", ""])
def test_a_digest_is_for_one_purpose_and_key(purpose: str) -> None:
    """No other purpose or key gives the same one."""
    own = digest(KEYS["1"], purpose, b"x")
    assert own not in {digest(KEYS["1"], purpose + "s", b"x"), digest(KEYS["2"], purpose, b"x")}
