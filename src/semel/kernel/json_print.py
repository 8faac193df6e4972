"""JSON out: quick where that is exact, and whole where a client sent what the quick printer cannot carry."""

from __future__ import annotations

import json
from typing import Any

import orjson


def dump(value: Any) -> bytes:
    """A value that a strict parser could have made, as JSON with its names in the order given."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # integers beyond 64 bits, and halves of surrogate pairs
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
