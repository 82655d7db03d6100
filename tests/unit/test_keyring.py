"""Keys, and what they seal."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import codec
from holdfast.codec.secret import masked_json
from holdfast.errors import InvalidInput, InvalidSettings
from holdfast.keyring import DigestKey, keys_here, read_keys, sealed_by

SECRET = base64.b64encode(bytes(32)).decode()
OTHER = base64.b64encode(b"o" * 32).decode()
RING = read_keys(f"new:{SECRET},old:{OTHER}", "here", os.urandom)


@given(st.binary(max_size=200))
def test_what_is_sealed_is_opened(raw: bytes) -> None:
    """Whatever was sealed comes back, also what looks sealed. The same text is never sealed into the same bytes."""
    sealed = RING.seal(raw)
    assert RING.open(sealed) == raw
    assert RING.open(RING.open(RING.seal(sealed))) == raw
    assert sealed_by(sealed) == "new"
    assert sealed != RING.seal(raw)
    assert isinstance(codec.read_json(sealed, "a payload"), dict)


@given(st.binary(min_size=1, max_size=60), st.data())
def test_a_changed_text_is_not_opened(raw: bytes, data: st.DataObject) -> None:
    """One bit that somebody changed is noticed, and the payload is refused when it is read."""
    sealed = RING.seal(raw)
    start = sealed.index(b".") + 1
    text = bytearray(base64.b64decode(sealed[start:-2]))
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= 1 << data.draw(st.integers(0, 7))
    forged = sealed[:start] + base64.b64encode(bytes(text)) + sealed[-2:]
    assert RING.open(forged) == forged
    with pytest.raises(InvalidInput, match="sealed with the key 'new'"):
        codec.decode_any(forged)


def test_a_key_that_is_not_here_opens_nothing() -> None:
    sealed = read_keys(f"third:{SECRET}", "here", os.urandom).seal(b"1")
    assert RING.open(sealed) == sealed
    with pytest.raises(InvalidInput, match="'third', which HOLDFAST_KEYS does not have"):
        codec.Payload(int, "f()").decode(sealed)


def test_an_old_key_opens_and_does_not_seal() -> None:
    sealed = read_keys(f"old:{OTHER}", "here", os.urandom).seal(b"1")
    assert RING.open(sealed) == b"1"
    assert sealed_by(RING.seal(b"1")) == "new"


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_digests_are_hidden_and_stay_comparable(one: bytes, other: bytes) -> None:
    """Equal digests are equal when they are hidden, and others are not. Those that were never hidden stay as they are."""
    key = DigestKey(b"k" * 32)
    assert key.open(key.seal(one)) == one
    assert (key.seal(one) == key.seal(other)) == (one == other)
    assert key.seal(one) != one
    assert key.open(one) == one
    assert key.seal(key.seal(one)) == key.seal(one), "sealing twice changes nothing"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing", "written ID:BASE64"),
        (f"A:{SECRET}", "written ID:BASE64"),
        (f"a b:{SECRET}", "written ID:BASE64"),
        ("a:not base64!", "is not base64"),
        ("a:" + base64.b64encode(b"short").decode(), "it has 5 bytes, a key has 32"),
        (f"a:{SECRET},a:{OTHER}", "the id 'a' is there twice"),
    ],
)
def test_a_wrong_key_is_refused_with_its_place_and_never_shown(text: str, words: str) -> None:
    with pytest.raises(InvalidSettings, match=r"HOLDFAST_KEYS, key [12]") as refused:
        keys_here({"HOLDFAST_KEYS": text}, os.urandom)
    assert words in str(refused.value)
    assert SECRET not in str(refused.value)


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    """One a line, with comments. A file that is missing or empty is an error, and so are both ways at once."""
    file = tmp_path / "keys"
    with pytest.raises(InvalidSettings, match="cannot be read"):
        keys_here({"HOLDFAST_KEYS_FILE": str(file)}, os.urandom)
    file.write_text("")
    with pytest.raises(InvalidSettings, match="has no key"):
        keys_here({"HOLDFAST_KEYS_FILE": str(file)}, os.urandom)
    file.write_text(f"# since March\nb:{SECRET}\na:{OTHER}\n")
    found = keys_here({"HOLDFAST_KEYS_FILE": str(file)}, os.urandom)
    assert found is not None
    assert found.ids == ["b", "a"]
    with pytest.raises(InvalidSettings, match="both set"):
        keys_here({"HOLDFAST_KEYS_FILE": str(file), "HOLDFAST_KEYS": f"b:{SECRET}"}, os.urandom)
    assert keys_here({}, os.urandom) is None


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (
            b'{"a":{"$secret":"x"},"b":[{"$secret":{"c":1}}]}',
            b'{"a":"\xe2\x80\xa2\xe2\x80\xa2\xe2\x80\xa2","b":["\xe2\x80\xa2\xe2\x80\xa2\xe2\x80\xa2"]}',
        ),
        (b'{"a":1}', b'{"a":1}'),
        (b'{"$secret":', b'"\xe2\x80\xa2\xe2\x80\xa2\xe2\x80\xa2"'),
    ],
)
def test_secrets_are_dots_for_people(raw: bytes, shown: bytes) -> None:
    assert masked_json(raw) == shown
