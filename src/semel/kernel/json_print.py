"""JSON out: quick where that is exact, and whole where a client sent what the quick printer cannot carry."""

from __future__ import annotations

import json
from typing import Any

import orjson

from semel.kernel.json_fragment import fragment_of, is_plain


def dump(value: Any) -> bytes:
    """A value that a strict parser or an outline could have made, as JSON with its names in the order given."""
    try:
        return orjson.dumps(value, default=_fragment)
    except orjson.JSONEncodeError:  # integers beyond 64 bits, and halves of surrogate pairs
        if isinstance(value, dict) and not is_plain(value):
            return b"{%s}" % b",".join(b"%s:%s" % (dump(name), dump(one)) for name, one in value.items())
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def _fragment(value: Any) -> orjson.Fragment:
    found = fragment_of(value)
    if found is None:
        raise TypeError(f"{type(value).__name__} is not a JSON type")
    return orjson.Fragment(found.text)
