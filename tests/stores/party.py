"""A client of one store's servers, which names what only its servers know: two clients can compare their answers."""

from __future__ import annotations

import itertools
import json
import re
import socket

from tests.harness.conversations import TIMEOUT_SECONDS, AnswerReader, Step, request
from tests.stores.calls import Call, json_of
from tests.stores.names import Names

_MARK = re.compile(r"@(\w+):(-?\d+)@")
_OFFSET = re.compile(r"(?im)(?<=^stream-next-offset: )\d{16}_\d{16}")


class Party:
    """Connections to one store's servers, in turn; one that the server has closed is opened again."""

    def __init__(self, *ports: int) -> None:
        self._turns = itertools.cycle(ports)
        self.ids: list[str] = []
        """The request ids of all answers."""
        self._sockets: dict[tuple[int, int], socket.socket] = {}
        self._names = Names()
        self._list = ""
        """The path that is asked for: the ends of pages are known by it."""

    def play(self, step: Step) -> list[str]:
        """Send a step; the answers, and `closed` if the server closed the connection instead of the next one."""
        place = (step.connection, next(self._turns))
        sock = self._sockets.get(place)
        if sock is None:
            sock = self._sockets[place] = socket.create_connection(("127.0.0.1", place[1]), TIMEOUT_SECONDS)
        answers = []
        reader = AnswerReader(sock)
        try:
            sock.sendall(step.data)
            for method in step.methods:
                reader.receive(method)
                answers.append(self._told(reader))
                self.ids.append(reader.request_id)
                if reader.is_last:
                    break
        except (ConnectionError, EOFError):
            reader.is_last = True
            answers.append("closed")
        if reader.is_last:
            self._sockets.pop(place).close()
        return answers

    def close(self) -> None:
        """Close all connections."""
        for sock in self._sockets.values():
            sock.close()

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
            self._names.add("join", self._names.known["job"][int(made[0][5:-1])])
        return answer

    def _told(self, reader: AnswerReader) -> str:
        body = reader.body.decode("latin-1")
        self._learn(reader.head, body)
        return self._names.mapped(reader.head) + "\n" + self._names.mapped(body)

    def _filled(self, text: str) -> str:
        def meant(found: re.Match[str]) -> str:
            known = self._names.known[f"next {self._list}" if found[1] == "next" else found[1]]
            return known[int(found[2]) % len(known)] if known else "none"

        return _MARK.sub(meant, text)

    def _learn(self, head: str, body: str) -> None:
        """What later calls are made of."""
        for offset in _OFFSET.findall(head):
            self._names.add("offset", offset)
        if not body.startswith("{") or " 200 " not in head.partition("\r\n")[0] or "application/json" not in head:
            return
        answer = json.loads(body.encode("latin-1"))
        for job in answer.get("jobs", ()):
            if "lease_token" in job:
                self._names.known["held"].append(job["job_id"])
                self._names.known["lease"].append(job["lease_token"])
        if answer.get("next"):
            self._names.add(f"next {self._list}", str(answer["next"]))
        if "genesis" in answer:
            org, vault = answer["genesis"]["organization"]["slug"], answer["vault"]["slug"]
            self._names.add("place", f"/ledger/v1/orgs/{org}/vaults/{vault}")
        elif "slug" in answer:
            self._names.add("org", f"/ledger/v1/orgs/{answer['slug']['slug']}")
