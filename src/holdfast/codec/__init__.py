"""Payloads: JSON by declared type, through msgspec. Never pickle.

`shape` checks, writes and reads the arguments and the result of a function; `forms` knows the types; `failure` turns
exceptions into JSON and back. Values are checked where they are written, so that the caller gets the error.
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
    gave_up_error,
    honest,
    is_unsure,
    mark_unsure,
    message_of,
    own_error,
    place_of,
    revoked_error,
    with_undone,
)
from holdfast.codec.payload import Payload, decode_any, encode_any, encode_open
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
    "gave_up_error",
    "honest",
    "is_unsure",
    "mark_unsure",
    "message_of",
    "own_error",
    "place_of",
    "progress_note",
    "read_json",
    "revoked_error",
    "stored_tags",
    "stored_text",
    "with_undone",
]


def digest(raw: bytes) -> bytes:
    """What tells one input from another when a run is replayed."""
    return blake2b(raw, digest_size=16).digest()
