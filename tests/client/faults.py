"""The table of faults: what happens to a request, whether it was executed, and what a call without retries says."""

from __future__ import annotations

import json
from typing import NamedTuple

from semel.client import BadAnswerError, BusyError, NoAnswerError, OutcomeUnknown, RefusedError
from tests.client.line import Fault

AFTER_SECONDS = 1
HUGE = 2**40


class Faulty(NamedTuple):
    """A row of the table."""

    fault: Fault
    write: type[Exception] | None
    """The error of a write that is not retried; None if there is none."""
    read: type[Exception] | None
    """The error of a read that is not retried."""
    is_done: bool
    """Whether the server has executed the request."""
    is_final: bool = False
    """Whether no retry can help, so that there is none."""
    is_answer: bool = False
    """Whether it looks like a success to a call that reads no more of an answer than its status."""
    is_object: bool = False
    """Whether it looks like one to a call that wants an object and none of its members."""
    after: float = 0.0
    """Seconds that the client was asked to wait."""

    @property
    def is_strange(self) -> bool:
        """Whether a reader sees at once that this is no server of ours."""
        return self.read is BadAnswerError


def answer(status: int, body: bytes, media_type: str = "application/json", **headers: str) -> bytes:
    """An answer of these bytes."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {media_type}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def refusal(status: int, code: str, retry: str, **headers: str) -> bytes:
    """A refusal in the words of Semel."""
    return answer(status, json.dumps({"code": code, "detail": "No.", "retry": retry}).encode(), **headers)


def page(status: int) -> bytes:
    """What a proxy says."""
    return answer(status, b"<html>", "text/html")


def instead(content: bytes, *, is_asked: bool) -> Fault:
    """Another answer."""
    return Fault(instead=content, request=1.0 if is_asked else 0.0)


def lost(fault: Fault, *, is_done: bool) -> Faulty:
    """An attempt without an answer."""
    return Faulty(fault, OutcomeUnknown, NoAnswerError, is_done)


def _odd(body: bytes, media_type: str = "application/json") -> Faulty:
    fault = instead(answer(200, body, media_type), is_asked=True)
    is_object = body.startswith(b"{") and body.endswith(b"}") and b"\xff" not in body
    return Faulty(fault, OutcomeUnknown, BadAnswerError, is_done=True, is_answer=True, is_object=is_object)


def _asked_to_wait(status: int, code: str, **headers: str) -> Faulty:
    fault = instead(refusal(status, code, "later", **headers), is_asked=False)
    return Faulty(fault, BusyError, BusyError, is_done=False, after=float(headers.get("Retry_After", 0)))


def _unsure(content: bytes, read: type[Exception], *, is_done: bool) -> Faulty:
    return Faulty(instead(content, is_asked=is_done), OutcomeUnknown, read, is_done)


_MOVED = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"

OF_THE_LINE: dict[str, Faulty] = {
    "refused": Faulty(Fault(is_refused=True), NoAnswerError, NoAnswerError, is_done=False),
    "cut before the request": lost(Fault(request=0.0), is_done=False),
    "cut in the request": lost(Fault(request=0.5), is_done=False),
    "cut before its last byte": lost(Fault(request=0.999), is_done=False),
    "cut behind the request": lost(Fault(answer=0.0), is_done=True),
    "cut in the head of the answer": lost(Fault(answer=0.1), is_done=True),
    "cut in the answer": lost(Fault(answer=0.9), is_done=True),
    "slow": Faulty(Fault(is_slow=True), None, None, is_done=True),
    "ended behind the answer": Faulty(Fault(is_last=True), None, None, is_done=True),
}
"""Faults of connections, which belong to a loop."""

OF_ANSWERS: dict[str, Faulty] = {
    "429 and a pause": _asked_to_wait(429, "rate_limited", Retry_After=str(AFTER_SECONDS)),
    "503 for lack of room": _asked_to_wait(503, "OVERLOADED"),
    "503 not durable": _unsure(refusal(503, "not_durable", "same_key"), BusyError, is_done=True),
    "500": _unsure(refusal(500, "internal_error", "same_key"), RefusedError, is_done=True),
    "500 before anything was done": _unsure(refusal(500, "internal_error", "same_key"), RefusedError, is_done=False),
    "502 of a proxy": _unsure(page(502), RefusedError, is_done=True),
    "503 of a proxy": _unsure(page(503), BusyError, is_done=False),
    "524 of a proxy": _unsure(page(524), RefusedError, is_done=True),
    "moved": Faulty(instead(_MOVED, is_asked=False), OutcomeUnknown, BadAnswerError, is_done=False, is_final=True),
    "too large": Faulty(
        instead(b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n{" % HUGE, is_asked=True),
        OutcomeUnknown,
        BadAnswerError,
        is_done=True,
        is_final=True,
    ),
    "no HTTP": _unsure(b"HTTP/1.1 banana\r\n\r\n", BadAnswerError, is_done=True),
    "nothing": _odd(b""),
    "cut JSON": _odd(b'{"ok":true,"job_id":"job_1","results":[{"id'),
    "a page": _odd(b"<html>Sign in</html>", "text/html"),
    "another type": _odd(b"ok", "text/plain"),
    "a list": _odd(b"[]"),
    "no members": _odd(b'{"something":"else"}'),
    "members of other types": _odd(b'{"ok":7,"jobs":{},"results":7,"success":[],"deleted":{},"serverHlc":[]}'),
    "not UTF-8": _odd(b'{"ok":"\xff"}'),
}
"""Answers of servers in trouble, of proxies, and of strangers."""

SILENT = {
    "silent": lost(Fault(answer=0.0, is_silent=True), is_done=True),
    "silent in the answer": lost(Fault(answer=0.9, is_silent=True), is_done=True),
}
FAULTS = OF_THE_LINE | OF_ANSWERS
"""Those that need no patience."""
