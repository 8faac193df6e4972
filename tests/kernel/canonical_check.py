"""Compare the canonicalizer with an independent one on many random documents; exit 1 on any difference.

    python tests/kernel/canonical_check.py --documents 200000 --seed 1

Half of the documents are ordinary, so that the quick path is exercised as much as the slow one. Some are
damaged, and there the two paths need only agree with each other on the value or on the kind of refusal.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
from collections import Counter
from collections.abc import Callable

import rfc8785

from semel.kernel.json.canonical import (
    Integers,
    Json,
    JsonError,
    JsonKind,
    Surrogates,
    canonical,
    canonical_slowly,
    canonicalize,
    parse,
)
from semel.kernel.json.messages import split_messages
from semel.kernel.json.parse import load, parse_slowly, prints_canonically

ORDINARY_LETTERS = 'abcdefgh ABC 0123 é日:,[]{}\\"/.e'
ODD_LETTERS = ORDINARY_LETTERS + "\x00\x1f\x7f\b\t\n\f\r\u2028\ue000\ufb33\uffff\U0001f600\U0010ffff"
DAMAGE = [b'"', b"\\", b",", b":", b"[", b"}", b"1e999", b'"a":1,"a":2,', b"NaN", b"\xff", b"\\ud800", b"0"]


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

    def damage(self, raw: bytes) -> bytes:
        at = self.random.randrange(len(raw) + 1)
        return raw[:at] + self.random.choice(DAMAGE) + raw[at + self.random.randrange(3) :]


def outcome(call: Callable[[], object]) -> str:
    """What a call returns, told apart by type, or the kind of its refusal."""
    try:
        return repr(call())
    except JsonError as error:
        return error.kind


def whole_document_is_right(author: Author, odd: bool, counts: Counter[str]) -> bool:
    document = author.document(odd)
    raw, expected = author.write(document), rfc8785.dumps(document)
    loaded = load(raw)
    counts["quick" if loaded and prints_canonically(loaded.printed) else "slow"] += 1
    messages = split_messages(b"[" + raw + b"," + raw + b"]", 2)
    return (
        canonicalize(raw, Integers.REFUSE, Surrogates.REFUSE) == expected
        and canonical(document, Integers.EXACT, Surrogates.REFUSE) == expected
        and canonical_slowly(parse_slowly(raw), Integers.ROUND, Surrogates.ESCAPE) == expected
        and messages == (raw + b"," + raw, 2)
    )


def damaged_document_is_right(author: Author, odd: bool, counts: Counter[str]) -> bool:
    raw = author.damage(author.write(author.document(odd)))
    slow = outcome(lambda: parse_slowly(raw))
    counts["damaged, refused" if slow in set(JsonKind) else "damaged, still good"] += 1
    slow_text = outcome(lambda: canonical_slowly(parse_slowly(raw), Integers.REFUSE, Surrogates.ESCAPE))
    quick_text = outcome(lambda: canonicalize(raw, Integers.REFUSE, Surrogates.ESCAPE))
    return outcome(lambda: parse(raw)) == slow and quick_text == slow_text


def check(documents: int, seed: int) -> Counter[str]:
    author, counts = Author(seed), Counter[str]()
    for number in range(documents):
        odd = number % 2 == 0
        is_right = damaged_document_is_right if number % 10 >= 8 else whole_document_is_right
        if not is_right(author, odd, counts):
            counts["different"] += 1
            print(f"different: document {number} of seed {seed}")
    return counts


def main() -> int:
    arguments = argparse.ArgumentParser(description="Compare the canonicalizer with an independent one.")
    arguments.add_argument("--documents", type=int, default=200_000)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    counts = check(chosen.documents, chosen.seed)
    for name in ("quick", "slow", "damaged, refused", "damaged, still good", "different"):
        print(f"{name:20} {counts[name]:9,}")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
