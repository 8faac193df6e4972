"""Every field of every call with every value that somebody will send one day: an answer of the contract, never a fault.

Each call has a good body; one field at a time is replaced. What the answer must be is in `test_fields`; here it must
only be one, and the log must show no fault, which the shared server is checked for at its end.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.jobs.wire import CLAIM, PATH, RESULT, SUBMIT, Jobs, Message, fresh

VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63,
    -(2**70),
    10**400,
    1e308,
    "",
    " ",
    "x",
    "x" * 300,
    "\x00",
    "\ud800",
    "\u202e\U0001f600",
    "' OR 1=1 --",
    "../../etc",
    "%s%n{0}",
    "2026-02-30T00:00:00Z",
    "f" * 32,
    [],
    [None],
    [[["x"]]],
    {},
    {"": 1},
    {"code": None},
    {"mode": "sha256", "sha256": "\u00fc" * 64},
]

REPORT: Message = {"lease_token": "0" * 32}
CALLS: dict[str, tuple[str, Message]] = {
    "submit": (
        PATH,
        {
            "kind": "k",
            "params": {},
            "idempotency_key": "nasty",
            "client": {"node_id": "n"},
            "queue": "nasty",
            "priority": 1,
            "delay_ms": 0,
            "max_attempts": 1,
            "lease_sec": 1,
            "on_failed": "return",
            "wait_ms": 0,
        },
    ),
    "submit, mesh": (SUBMIT, {"kind": "k", "params": {"a": 1}, "run_at": "2020-01-01T00:00:00Z", "client": {}}),
    "batch": (f"{PATH}/batch", {"jobs": [{"kind": "k", "queue": "nasty"}]}),
    "claim": (
        f"{PATH}/claim",
        {
            "worker_id": "w",
            "max": 1,
            "kinds": ["none"],
            "queues": ["none"],
            "lease_sec": 1,
            "claim_id": "c",
            "wait_ms": 0,
        },
    ),
    "claim, mesh": (CLAIM, {"node_id": "w", "queues": ["none"]}),
    "complete": ("complete", REPORT | {"result": 1, "integrity": {"mode": "sha256", "sha256": "0" * 64}}),
    "fail": (
        "fail",
        REPORT | {"error": {"code": "c", "message": "m"}, "retryable": True, "retry_after_ms": 0, "integrity": None},
    ),
    "defer": ("defer", REPORT | {"delay_ms": 0, "reason": "r"}),
    "heartbeat": ("heartbeat", REPORT | {"progress": 1}),
    "steps": ("steps", REPORT | {"step_key": "s", "result": 1}),
    "result, mesh": (RESULT, {"job_id": "job_" + "0" * 32, "ok": True, "result": 1} | REPORT),
    "cancel": ("cancel", {"force": False}),
    "requeue": ("requeue", {"force": False}),
    "lookup by key": (f"{PATH}/lookup", {"idempotency_key": "nasty"}),
    "lookup by request": (f"{PATH}/lookup", {"request_id": "00000000-0000-4000-8000-000000000000"}),
    "release": (f"{PATH}/keys/release", {"principal": "default", "idempotency_key": "none", "force": False}),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_value_of_any_field_is_a_fault(jobs: Jobs, call: str) -> None:
    path, good = CALLS[call]
    job_id = jobs.submit("k", {}, queue=fresh("nasty"))["job_id"]
    target = path if path.startswith("/") else f"{PATH}/{job_id}/{path}"
    assert jobs.post(target, good, expect=None).http != 400, "the good body is bad"
    for field in (*good, "unknown"):
        for value in VALUES:
            answer = jobs.post(target, expect=None, content=text_of(good | {field: value}))
            assert answer.http in (200, 400, 404, 409, 413, 422), (field, value, answer.http, dict(answer))
    for body in VALUES:
        if not isinstance(body, dict):
            assert jobs.post(target, expect=400, content=text_of(body))["error"] == "invalid_request"


def text_of(body: Any) -> bytes:
    """As JSON, with escapes: half a surrogate pair has no other form."""
    return json.dumps(body).encode()


PLACES = {
    "job": f"{PATH}/{{}}",
    "result": f"{PATH}/{{}}/result",
    "queue": f"{PATH}/queues/{{}}",
    "schedule": f"{PATH}/schedules/{{}}",
    "wait": f"{PATH}/job_1?wait_ms={{}}",
    "state": f"{PATH}?state={{}}",
    "queue of the list": f"{PATH}?queue={{}}",
    "kind": f"{PATH}?kind={{}}",
    "after": f"{PATH}?after={{}}",
    "limit": f"{PATH}?limit={{}}",
    "name": f"{PATH}?{{}}=1",
    "dead": f"{PATH}/dead?after={{}}",
}
TEXTS = [
    "%00",
    "%",
    "%zz",
    "%ff",
    "%ed%a0%80",
    "%2F..%2F",
    "a" * 3_000,
    "9" * 400,
    "-",
    "+",
    "%20",
    "%F0%9F%98%80",
    "a%0ab",
]


@pytest.mark.parametrize("place", PLACES)
def test_no_text_in_an_address_is_a_fault(jobs: Jobs, place: str) -> None:
    for text in TEXTS:
        answer = jobs.call("GET", PLACES[place].format(text), expect=None)
        assert answer.http in (200, 400, 404), (text, answer.http, dict(answer))
