"""Numbers of bytes as people write them: `65536`, `"64KiB"`, `"1MiB"`, `"2MB"`."""

from __future__ import annotations

import re

from semel.once.errors import InvalidKey

Size = int | str

_UNITS = {"B": 1, "kB": 1_000, "KB": 1_000, "KiB": 1_024, "MB": 1_000_000, "MiB": 1_048_576, "GiB": 1_073_741_824}
_TEXT = re.compile(r"(\d+)\s*(B|kB|KB|KiB|MB|MiB|GiB)")


def byte_count(value: Size) -> int:
    """The number; `InvalidKey` for a text without a unit, or a negative number."""
    if isinstance(value, str):
        match = _TEXT.fullmatch(value.strip())
        if match is None:
            raise InvalidKey(f"{value!r} is no number of bytes: write a number and a unit, as in '1MiB'.")
        return int(match[1]) * _UNITS[match[2]]
    if value < 0:
        raise InvalidKey(f"{value!r} is no number of bytes: it is negative.")
    return value
