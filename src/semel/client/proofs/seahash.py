"""SeaHash, which assigns a key of the state to one of 256 buckets. It is not a cryptographic hash."""

from __future__ import annotations

_SEEDS = (0x16F11FE89B0D677C, 0xB480A793D8E6C86C, 0x6FE2E5AAF078EBC9, 0x14F994A4C5259381)
_FACTOR = 0x6EED0E9DA4D94A4F
_MASK = 2**64 - 1


def seahash(content: bytes) -> int:
    """The hash of 64 bits, with the seeds of the reference."""
    first, second, third, fourth = _SEEDS
    for start in range(0, len(content), 8):
        word = int.from_bytes(content[start : start + 8], "little")
        first, second, third, fourth = second, third, fourth, _diffused(first ^ word)
    return _diffused(first ^ second ^ third ^ fourth ^ len(content))


def _diffused(word: int) -> int:
    word = word * _FACTOR & _MASK
    word ^= (word >> 32) >> (word >> 60)
    return word * _FACTOR & _MASK
