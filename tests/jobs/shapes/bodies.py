"""Bodies of job calls: plain ones, and slight variations of them. The quick parser beside the full one.

`python -m tests.jobs.shapes.bodies --cases 1000000` compares as many as you like: whatever the quick parser takes, the
full parser takes too, with the same result.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from semel.kernel.errors import Refused
from semel.kernel.json.text import JsonError
from semel.surfaces.jobs.limits import MAX_BATCH_JOBS, JobPolicy
from semel.surfaces.jobs.rules.completion import JobSigning
from semel.surfaces.jobs.wire.fields import Members, parse_members
from semel.surfaces.jobs.wire.quick import quick_claim, quick_draft, quick_drafts, quick_report
from semel.surfaces.jobs.wire.submission import parse_draft
from semel.surfaces.jobs.wire.worker_calls import ClaimCaller, parse_claim, parse_completion
from tests.harness.beside import main

POLICY = JobPolicy()
JOB_ID = bytes(range(16))
TOKEN = b'"%s"' % (b"0123456789abcdef" * 2)
NAMES = (
    b'"a"',
    b'"b"',
    b'"a.b"',
    b'"1e5"',
    b'"e"',
    b'"kind"',
    b'"params"',
    b'"x:y"',
    b'""',
    b'"\xc3\xa9"',
    b'"\\u0061"',
)
SCALARS = (
    *(
        b"0",
        b"-0",
        b"1",
        b"-12",
        b"true",
        b"false",
        b"null",
        b'"x"',
        b'"1.5"',
        b'"0e1"',
        b'"a,b:{}[]"',
        b"123456789012345",
    ),
    *(
        b"1.0",
        b"1e5",
        b"1E5",
        b"-0.0",
        b"0.1",
        b"1234567890123456",
        b"9007199254740993",
        b"12345678901234567890123",
        b"NaN",
    ),
    *(
        b'"\xf0\x9f\x98\x80"',
        b'"\\ud800"',
        b'"\\n"',
        b'"\x7f"',
        b'"\x01"',
        b"01",
        b"+1",
        b".5",
        b"1.",
        b"Infinity",
        b"tru",
    ),
)
SPACES = (b"", b"", b"", b"", b" ", b"\t", b"\n", b"\r\n", b"\x0b")
KEYS = (
    b'"k1"',
    b'"k2"',
    b'""',
    b'" "',
    b"null",
    b"1",
    b'"\\u0041"',
    b'"' + b"x" * 256 + b'"',
    b'"' + b"x" * 257 + b'"',
)


class Bodies:
    """Draws bodies."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def submission(self) -> bytes:
        """A submission."""
        chance = self._chance
        members = [(b'"kind"', self._one((b'"k"', b'"mail.send"'), (b'""', b"1", b'"a b"', b"null", b'"\xc3\xa9"')))]
        if chance.random() < 0.9:
            members.append((b'"params"', self._value(1) if self._is_odd() else self._object(1)))
        if chance.random() < 0.8:
            members.append((b'"idempotency_key"', self._one((b'"k-%d"' % chance.randrange(50),), KEYS)))
        if chance.random() < 0.2:
            members.append(
                (b'"queue"', self._one((b'"default"', b'"mail"'), (b'""', b"1", b"null", b'"%s"' % (b"q" * 65))))
            )
        if chance.random() < 0.2:
            members.append((b'"priority"', self._one((b"0", b"9", b'"high"'), (b"10", b"-1", b"true", b'"x"', b"1.0"))))
        if chance.random() < 0.4:
            members.append((b'"generated_key"', self._one((b"true", b"true", b"false"), (b"null", b"1", b'"true"'))))
        if self._is_odd():
            members.append(
                chance.choice(
                    (
                        (b'"delay_ms"', b"86400000"),
                        (b'"client"', b'{"node_id":"n"}'),
                        (b'"on_failed"', b'"retry"'),
                        (b'"unique"', b'{"key":"u"}'),
                        (b'"unique"', b"{}"),
                        (b'"debounce"', b'{"key":"d","delay_ms":86400000}'),
                        (b'"idempotencyKey"', b'"x"'),
                        (b'"kind"', b'"again"'),
                        (b'"max_attempts"', b"2"),
                        (b'"other"', b"[]"),
                    )
                )
            )
        return self._text(members)

    def many(self) -> bytes:
        """A few submissions in one body."""
        items = b",".join(self.submission() for _ in range(self._chance.choice((0, 1, 1, 2, 3))))
        members = [(b'"jobs"', b"[%b]" % items)]
        if self._is_odd():
            members.append(self._chance.choice(((b'"jobs"', b"[]"), (b'"x"', b"1"), (b'"idempotency_key"', b'"k"'))))
        return self._text(members)

    def claim(self) -> bytes:
        """A claim."""
        members = [(b'"worker_id"', self._one((b'"w1"', b'"w2"'), (b'""', b"1", b"null", b'"a\\tb"')))]
        if self._chance.random() < 0.8:
            members.append((b'"max"', self._one((b"1", b"3"), (b"0", b"101", b"null", b"true", b"1.0", b'"1"'))))
        if self._chance.random() < 0.2:
            members.append((b'"wait_ms"', self._one((b"0",), (b"false", b"null", b"0.0", b'"0"'))))
        if self._is_odd():
            members.append(self._chance.choice(((b'"kinds"', b'["k"]'), (b'"claim_id"', b'"c"'), (b'"max"', b"2"))))
        return self._text(members)

    def report(self, token: bytes = TOKEN) -> bytes:
        """A completion."""
        members = [
            (b'"lease_token"', self._one((token,), (b'"x"', b"null", b"1", token.upper(), token[:-1] + b'0"'))),
            (b'"result"', self._value(0)),
        ]
        if self._is_odd():
            members.append(
                self._chance.choice(((b'"integrity"', b"null"), (b'"retryable"', b"true"), (b'"result"', b"1")))
            )
        return self._text(members)

    def _is_odd(self) -> bool:
        return self._chance.random() < 0.12

    def _one(self, plain: tuple[bytes, ...], odd: tuple[bytes, ...]) -> bytes:
        return self._chance.choice(odd if self._is_odd() else plain)

    def _value(self, level: int) -> bytes:
        kind = self._chance.random()
        if kind < 0.2 and level < 6:
            return self._object(level + 1)
        if kind < 0.35 and level < 6:
            return b"[%b]" % b",".join(self._value(level + 1) for _ in range(self._chance.randrange(3)))
        return self._chance.choice(SCALARS if self._is_odd() else SCALARS[:12])

    def _object(self, level: int) -> bytes:
        names = NAMES if self._is_odd() else NAMES[:9]
        chosen = self._chance.sample(names, self._chance.randrange(4))
        if chosen and self._chance.random() < 0.03:
            chosen.append(chosen[0])
        return self._text([(name, self._value(level)) for name in chosen])

    def _text(self, members: list[tuple[bytes, bytes]]) -> bytes:
        self._chance.shuffle(members)
        space = self._chance.choice(SPACES) if self._is_odd() else b""
        text = b"{%b}" % b",".join(name + b":" + space + value for name, value in members)
        if self._chance.random() < 0.01:
            return text + self._chance.choice((b"x", b" ", b"}", b"\x00", b"{}"))
        return text


def full_draft(body: bytes) -> Any:
    """What the full parser makes of a submission; None if it refuses."""
    try:
        return parse_draft(parse_members(body), None, b"ann", POLICY, b"8 bytes.")
    except Refused:
        return None


def full_many(body: bytes) -> Any:
    """What the full parser makes of many submissions; None if it refuses one of them."""
    try:
        items = [_item(item) for item in parse_members(body).items("jobs", MAX_BATCH_JOBS)]
        return tuple(parse_draft(item, None, b"ann", POLICY, b"8 bytes.") for item in items)
    except (Refused, JsonError):
        return None


def _item(item: Members | Refused) -> Members:
    if isinstance(item, Refused):
        raise item
    return item


def full_claim(body: bytes) -> Any:
    """What the full parser makes of a claim that does not wait."""
    try:
        asked = parse_claim(parse_members(body), ClaimCaller(b"ann", None, 7, b"secret"))
    except Refused:
        return None
    return asked.claim._replace(reap_until=9) if not asked.wait_ms else None


def full_report(body: bytes) -> Any:
    """What the full parser makes of a completion."""
    try:
        return parse_completion(JOB_ID, parse_members(body), POLICY, JobSigning())
    except Refused:
        return None


def compare(seed: int, cases: int) -> Counter[str]:
    """Parse as many bodies both ways; the number that the quick parser took, by kind."""
    bodies, taken = Bodies(random.Random(seed)), Counter[str]()
    caller = ClaimCaller(b"ann", None, 7, b"secret")
    for number in range(cases):
        kind = ("submission", "report", "claim", "many")[number % 4]
        body: bytes = getattr(bodies, kind)()
        quick: Any
        if kind == "submission":
            quick, full = quick_draft(body, b"ann", POLICY, b"8 bytes."), full_draft
        elif kind == "many":
            quick, full = quick_drafts(body, b"ann", POLICY, lambda: b"8 bytes."), full_many
        elif kind == "claim":
            quick, full = quick_claim(body, caller, 9), full_claim
        else:
            quick, full = quick_report(JOB_ID, body, POLICY), full_report
        if quick is not None:
            taken[kind] += 1
            assert quick == full(body), (body, quick, full(body))
    return taken


if __name__ == "__main__":
    main(__doc__, lambda seed, cases: compare(seed, cases) + Counter(cases=cases))
