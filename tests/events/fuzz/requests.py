"""Wrong requests over plain HTTP: bodies that are broken, queries that make no sense. The same oracle, as statuses."""

from __future__ import annotations

import random

import httpx

from tests.events.fuzz import breakages, oracle
from tests.events.fuzz.documents import Message, drop, paths, payloads, place_name, put, spelled
from tests.events.fuzz.oracle import Outcome, place_row
from tests.events.fuzz.verdict import SHOWN_BYTES, FuzzVerdict
from tests.events.model.lines import PATH
from tests.events.raw_frames import unframed
from tests.events.shapes import SEED, Dialect, is_shaped

SECONDS = 60.0
STATUSES = {
    Outcome("bad_request"): {400},
    Outcome("auth_failed", 1008): {401, 403},
    Outcome("bad_request", 1009): {413},
    Outcome("committed"): {200},
    Outcome("rejected validation_failed"): {200},
    Outcome("", 1007): {400},
}
BODIES = sorted(set(breakages.UNREADABLE) - {"unknown type", "binary", "too large in fragments"})
QUERY_NAMES = ("partition", "partition", "since", "limit", "to", "client_id", "other")
QUERY_VALUES = (
    "",
    "0",
    "7",
    "-1",
    "1.5",
    "1e3",
    "x",
    "9007199254740993",
    "9" * 400,
    "true",
    "p-é",
    "x" * 200,
    " ",
    "+1",
)
RAW_VALUES = ("%", "%zz", "%ff", "%ed%a0%80", "%00", "a%20b", "%C3%A9")

_is_result = is_shaped(SEED["submit_events_result"])


class RequestLane:
    """One HTTP client, one request after another."""

    def __init__(self, url: str, chance: random.Random, verdict: FuzzVerdict) -> None:
        self._http = httpx.Client(base_url=url, timeout=SECONDS)
        self._chance = chance
        self._verdict = verdict

    def send(self) -> None:
        """The next one."""
        self._verdict.frames += 1
        if self._chance.random() < 0.4:
            return self._query()
        if self._chance.random() < 0.4:
            return self._broken_body()
        return self._changed_place()

    def close(self) -> None:
        """No more."""
        self._http.close()

    def _broken_body(self) -> None:
        kind = self._chance.choice(BODIES)
        if kind in breakages.RARE and self._chance.random() > 0.1:
            return None
        data = unframed(breakages.UNREADABLE[kind](self._chance, self._body(), Dialect.SEED))
        return self._post(kind, oracle.UNREADABLE[kind], data)

    def _changed_place(self) -> None:
        body = self._body()
        path = self._chance.choice(list(paths(body)))
        place = place_name(("payload", *path))
        label = self._chance.choice((None, *sorted(oracle.VALUES)))
        changed = drop(body, path) if label is None else put(body, path, oracle.VALUES[label])
        row = place_row(Dialect.SEED, "submit_events", place, label)
        if place == "payload.client_id":  # here it is what names the client, and may be left out
            row = oracle.one_of(row, oracle.COMMITTED, oracle.FOREIGN, oracle.BAD)
        return self._post(f"{label} as {place}", row, spelled(changed, self._chance))

    def _body(self) -> Message:
        return dict(payloads(Dialect.SEED, "fuzz-post")["submit_events"])

    def _post(self, kind: str, row: oracle.Row, data: bytes) -> None:
        answer = self._http.post(PATH, content=data, headers={"Content-Type": "application/json"})
        self._verdict.kinds[f"POST: {kind}"] += 1
        allowed = set().union(*(STATUSES[outcome] for outcome in row))
        is_right = answer.status_code in allowed and self._is_shaped(answer)
        if answer.status_code == httpx.codes.OK and is_right:
            first = answer.json()["results"][0]
            found = "committed" if first["status"] == "committed" else f"{first['status']} {first['reason']}"
            is_right = Outcome(found) in row
        if not is_right:
            said = f"{answer.status_code} {answer.text[:SHOWN_BYTES]}"
            self._verdict.blame(f"POST, {kind}: {said}, not {allowed}; sent {data[:SHOWN_BYTES]!r}")

    def _query(self) -> None:
        """Any of the parameters, any number of times, with any value: a page or a refusal."""
        pairs = []
        for _ in range(self._chance.randrange(6)):
            value = self._chance.choice((*QUERY_VALUES, *RAW_VALUES))
            pairs.append(
                f"{self._chance.choice(QUERY_NAMES)}={value if '%' in value else httpx.QueryParams({'v': value})}"
            )
        query = "&".join(pair.replace("=v=", "=") for pair in pairs)
        answer = self._http.get(f"{PATH}?{query}")
        self._verdict.kinds["GET"] += 1
        is_right = answer.status_code in (200, 400) and self._is_shaped(answer)
        if not is_right:
            self._verdict.blame(f"GET {query}: {answer.status_code} {answer.text[:SHOWN_BYTES]}")

    def _is_shaped(self, answer: httpx.Response) -> bool:
        if answer.status_code == httpx.codes.OK:
            return _is_result(answer.json()) or "sync_to_committed_id" in answer.json()
        document = answer.json()
        is_problem = answer.headers.get("Content-Type") == "application/problem+json"
        code, status = document.get("code"), document.get("status")
        return is_problem and code in {"bad_request", "auth_failed"} and status == answer.status_code
