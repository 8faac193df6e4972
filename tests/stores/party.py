"""A client of one store's servers, which names what only its servers know: two clients can compare what they were told.

An id, token, slug, hash or position is named by its kind and its number in the order of first appearance. So answers of
two stores are equal only if the same id stands in the same places in both conversations.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from tests.harness.conversations import AnswerReader, Caller, Step, request
from tests.stores.calls import Call, json_of

_MARK = re.compile(r"@(\w+):(-?\d+)@")
_NAMED: Sequence[tuple[str, re.Pattern[str]]] = (
    ("etag", re.compile(r"(?im)(?<=^etag: ).*$")),
    ("page", re.compile(r'(?<="nextPageToken":")[^"]+')),
    ("next", re.compile(r'(?<="next":")[^"]+')),
    ("job", re.compile(r"job_[0-9a-f]{32}")),
    ("uuid", re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")),
    ("hash", re.compile(r"\b[0-9a-f]{24,}\b")),
    ("digest", re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{22}==)")),
    ("hlc", re.compile(r"\b1\d{17}\b")),
    ("slug", re.compile(r"\b[1-9]\d{15}\b")),
)
_CONSTANT: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"(?im)^(date|x-request-id|content-length|stream-cursor): .*$"), r"\1: -"),
    (re.compile(r'"(requestId|request|instance)": ?"[^"]*"'), r'"\1":"-"'),
    (re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|\+00:00)"), "INSTANT"),
    (re.compile(r"\b1[78]\d{11}\b"), "MS"),
    (re.compile(r"\b1[78]\d{8}\b"), "SECOND"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
)
_OFFSET = re.compile(r"(?im)(?<=^stream-next-offset: )\d{16}_\d{16}")


class Party(Caller):
    """One store's client."""

    def __init__(self, *ports: int) -> None:
        super().__init__(*ports)
        self._named: dict[str, dict[str, str]] = defaultdict(dict)
        self._known: dict[str, list[str]] = defaultdict(list)
        """What marks stand for, by kind."""
        self._list = ""
        """The path that is asked for: the ends of pages are known by it."""

    def ask(self, call: Call, connection: int) -> str:
        """Make a call, and tell the answer with names for what only this server knows."""
        self._list = call.path.partition("?")[0]
        fields = dict(call.fields)
        body = json_of(call)
        if body is not None and not isinstance(call.body, bytes):
            body = self._filled(body.decode()).encode()
            fields = {"content_type": "application/json"} | fields
        data = request(call.method, self._filled(call.path), body, **fields)
        [answer] = self.play(Step(connection, data, (call.method,)))
        if b'"join"' in (body or b"") and (made := re.search(r"<job \d+>", answer)):
            self._add("join", self._known["job"][int(made[0][5:-1])])
        return answer

    def told(self, reader: AnswerReader) -> str:
        body = reader.body.decode("latin-1")
        self._learn(reader.head, body)
        return self._mapped(reader.head) + "\n" + self._mapped(body)

    def _filled(self, text: str) -> str:
        def meant(found: re.Match[str]) -> str:
            known = self._known[f"next {self._list}" if found[1] == "next" else found[1]]
            return known[int(found[2]) % len(known)] if known else "none"

        return _MARK.sub(meant, text)

    def _mapped(self, text: str) -> str:
        for pattern, word in _CONSTANT:
            text = pattern.sub(word, text)
        for kind, pattern in _NAMED:
            text = pattern.sub(partial(self._name, kind), text)
        return text

    def _name(self, kind: str, found: re.Match[str]) -> str:
        names, value = self._named[kind], found[0]
        if value not in names:
            names[value] = f"<{kind} {len(names)}>"
            self._known[kind].append(value)
        return names[value]

    def _learn(self, head: str, body: str) -> None:
        """What later calls are made of."""
        for offset in _OFFSET.findall(head):
            self._add("offset", offset)
        if not body.startswith("{") or " 200 " not in head.partition("\r\n")[0] or "application/json" not in head:
            return
        answer = json.loads(body.encode("latin-1"))
        for job in answer.get("jobs", ()):
            if "lease_token" in job:
                self._known["held"].append(job["job_id"])
                self._known["lease"].append(job["lease_token"])
        if answer.get("next"):
            self._add(f"next {self._list}", str(answer["next"]))
        if "genesis" in answer:
            org, vault = answer["genesis"]["organization"]["slug"], answer["vault"]["slug"]
            self._add("place", f"/ledger/v1/orgs/{org}/vaults/{vault}")
        elif "slug" in answer:
            self._add("org", f"/ledger/v1/orgs/{answer['slug']['slug']}")

    def _add(self, kind: str, value: str) -> None:
        if value not in self._known[kind]:
            self._known[kind].append(value)
