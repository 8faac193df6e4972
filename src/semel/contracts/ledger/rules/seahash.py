"""SeaHash, the reference algorithm with its default seeds: assigns a key to a bucket of the state.

Nothing rests on it being hard to invert; inside a bucket keys are placed by SHA-256.
"""

from __future__ import annotations

from struct import unpack_from

_MASK = 2**64 - 1
_PRIME = 0x6EED0E9DA4D94A4F
_SEEDS = (0x16F11FE89B0D677C, 0xB480A793D8E6C86C, 0x6FE2E5AAF078EBC9, 0x14F994A4C5259381)


def seahash(data: bytes) -> int:
    """The 64-bit hash."""
    a, b, c, d = _SEEDS
    words = -(-len(data) // 8)
    padded = data.ljust(words * 8, b"\0")
    for word in unpack_from(f"<{words}Q", padded):
        a, b, c, d = b, c, d, _diffuse(a ^ word)
    return _diffuse(a ^ b ^ c ^ d ^ len(data))


def _diffuse(x: int) -> int:
    x = x * _PRIME & _MASK
    x ^= (x >> 32) >> (x >> 60)
    return x * _PRIME & _MASK
