"""Payloads are JSON. msgspec writes and reads them by their declared type; nothing is ever pickled.

`shape` checks, writes and reads the arguments and the result of a function. `forms` knows the types. `failure` turns
exceptions into JSON and back. A value is checked when it is written, so that the caller gets the error.
"""

from hashlib import blake2b

from holdfast.codec.failure import (
    STEP,
    End,
    decode_error,
    describe_error,
    encode_error,
    end_of,
    ended_by,
    ending_of,
    gave_up_error,
    is_unsure,
    mark_unsure,
    message_of,
    original_error,
    place_in,
    place_of,
    revoked_error,
    safe_to_inspect,
    with_undone,
)
from holdfast.codec.forms import is_record
from holdfast.codec.payload import Payload, decode_any, encode_any, encode_open, is_same_json
from holdfast.codec.shape import Shape
from holdfast.codec.text import progress_note, read_json, stored_tags, stored_text

__all__ = [
    "STEP",
    "End",
    "Payload",
    "Shape",
    "decode_any",
    "decode_error",
    "describe_error",
    "digest",
    "encode_any",
    "encode_error",
    "encode_open",
    "end_of",
    "ended_by",
    "ending_of",
    "gave_up_error",
    "is_record",
    "is_same_json",
    "is_unsure",
    "mark_unsure",
    "message_of",
    "original_error",
    "place_in",
    "place_of",
    "progress_note",
    "read_json",
    "revoked_error",
    "safe_to_inspect",
    "stored_tags",
    "stored_text",
    "with_undone",
]


def digest(raw: bytes) -> bytes:
    """Return a short hash of an input. A replay compares it to find out whether the input has changed."""
    return blake2b(raw, digest_size=16).digest()
