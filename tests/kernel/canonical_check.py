"""Makes up random JSON documents, ordinary ones and odd ones, and the many ways to write one down."""

from __future__ import annotations

import json
import random
import struct

from semel.kernel.json.canonical import (
    Json,
)

ORDINARY_LETTERS = 'abcdefgh ABC 0123 é日:,[]{}\\"/.e'
ODD_LETTERS = ORDINARY_LETTERS + "\x00\x1f\x7f\b\t\n\f\r\u2028\ue000\ufb33\uffff\U0001f600\U0010ffff"


class Author:
    """Makes up documents and the many ways to write one down."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def document(self, odd: bool, depth: int = 0) -> Json:
        kind = self.random.random()
        if depth < 5 and (kind < 0.25 or depth == 0):
            count = self.random.randrange(6)
            return {self.text(odd): self.document(odd, depth + 1) for _ in range(count)}
        if depth < 5 and kind < 0.4:
            return [self.document(odd, depth + 1) for _ in range(self.random.randrange(6))]
        return self.leaf(odd)

    def leaf(self, odd: bool) -> Json:
        kind = self.random.randrange(5)
        if kind < 2:
            return self.text(odd)
        if kind == 2:
            return self.random.choice([None, True, False])
        return self.odd_number() if odd else self.ordinary_number()

    def text(self, odd: bool) -> str:
        return "".join(self.random.choices(ODD_LETTERS if odd else ORDINARY_LETTERS, k=self.random.randrange(9)))

    def ordinary_number(self) -> Json:
        if self.random.random() < 0.7:
            return self.random.randrange(-(10**12), 10**12)
        return self.random.randrange(-(10**6), 10**6) * 2 / 256 + 1 / 256

    def odd_number(self) -> Json:
        kind = self.random.randrange(4)
        if kind == 0:
            return self.random.randrange(-(2**53) + 1, 2**53)
        if kind == 1:
            return float(self.random.randrange(-1000, 1000))
        if kind == 2:
            return self.random.random() * 10.0 ** self.random.randrange(-12, 25)
        return self.any_double()

    def any_double(self) -> float:
        while True:
            (value,) = struct.unpack(">d", self.random.randbytes(8))
            if value - value == 0:
                return float(value)

    def write(self, document: Json) -> bytes:
        separators = self.random.choice([(",", ":"), (", ", ": "), (" ,\n", "\t: ")])
        return json.dumps(document, ensure_ascii=self.random.random() < 0.5, separators=separators).encode()
