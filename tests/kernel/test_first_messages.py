"""The first messages of a text of joined messages, whatever they hold and wherever the text is cut into pieces."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from semel.kernel.json import chunks
from semel.kernel.json.messages import first_messages

TEXTS = 400


def value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if kind < 0.3 and depth < 4:
        return [value(chance, depth + 1) for _ in range(chance.randrange(5))]
    if kind < 0.5 and depth < 4:
        return {chance.choice('ab,"[{\\'): value(chance, depth + 1) for _ in range(chance.randrange(4))}
    if kind < 0.8:
        return "".join(chance.choice('a,[]{}"\\é') for _ in range(chance.randrange(30)))
    return chance.randrange(10**6)


@pytest.mark.parametrize("piece_bytes", [7, 23, 64, 300, 65_536])
def test_any_number_of_messages_is_cut_out_whole(piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "PIECE_BYTES", piece_bytes)
    chance = random.Random(piece_bytes)
    for _ in range(TEXTS):
        messages = [
            json.dumps(value(chance), separators=(",", ":"), ensure_ascii=chance.random() < 0.5).encode()
            for _ in range(chance.randrange(1, 12))
        ]
        data = b",".join(messages)
        for count in range(1, len(messages) + 1):
            assert first_messages(data, count) == b",".join(messages[:count]), (data, count)
