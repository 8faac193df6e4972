"""What simulated clients write: drafts of every kind, their two spellings, and the outbox that never gives one up.

A draft is known by its stored form, partitions and event. The seed dialect and plain HTTP send that form as it is, with
names repeated and members in any order; 2.x sends a draft that was made for a project in its own words. The outbox
repeats a draft, with the same id and the same content, until it was answered.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from tests.events.model.model import Draft, Message, Model
from tests.events.shapes import Dialect

BIG_TEXT = 20_000
ODD_TEXTS = ("", "é", "e\u0301", "\ue000", "\U0001f600", '"\\/\b', "\u2028", "a")

_numbers = itertools.count(1)


class Author:
    """Makes up drafts from a seed."""

    def __init__(self, chance: random.Random, names: Sequence[str], run: str) -> None:
        self._chance = chance
        self._names = names
        self._run = run

    def draft(self, owner: str, project: str = "") -> Draft:
        """A new draft of one client; with a project, one that both dialects can send."""
        number = f"{self._run}-{next(_numbers)}"
        if project:
            return Draft(number, (project,), self._project_event(), owner)
        names = tuple(sorted(self._chance.sample(self._names, self._chance.choice((1, 1, 2, 3)))))
        return Draft(number, names, self._seed_event(), owner)

    def conflicting(self, draft: Draft) -> Draft:
        """Other content under a known id."""
        payload = {"other": self._chance.randrange(10**9)}
        return Draft(draft.id, draft.partitions, draft.event | {"payload": payload})

    def broken(self, owner: str, project: str = "") -> Draft:
        """A draft that breaks a rule for one item, and so is never committed."""
        draft = self.draft(owner, project)
        draft.is_valid = False
        fault = self._chance.randrange(1 if project else 4)
        if fault == 0:
            draft.event["type"] = ""
        elif fault == 1:
            draft.partitions = ()
        elif fault == 2:
            draft.partitions = ("",)
        else:
            draft.id = "ü" * 65
        return draft

    def _project_event(self) -> Message:
        meta: Message = {"clientTs": 1_760_000_000_000 + self._chance.randrange(10**6)}
        if self._chance.random() < 0.3:
            meta["tab"] = self._value(1)
        board = self._chance.choice(("board", "Board", "e\u0301"))
        payload = {"text": self._chance.choice(ODD_TEXTS), "value": self._value(0)}
        return {"type": "card.moved", "schemaVersion": 2, "payload": payload, "partition": board, "meta": meta}

    def _seed_event(self) -> Message:
        event: Message = {"type": self._chance.choice(("event", "note.added")), "payload": self._value(0)}
        if self._chance.random() < 0.1:
            event["payload"] = {"text": "x" * self._chance.randrange(BIG_TEXT)}
        return event

    def _value(self, depth: int) -> Any:
        kind = self._chance.randrange(7 if depth < 3 else 5)
        if kind == 0:
            return self._chance.choice((None, True, False, 0, -1, 0.5, 1e21, 1e-7, 2**53 - 1))
        if kind in (1, 2):
            return self._chance.randrange(10**6)
        if kind in (3, 4):
            return self._chance.choice(ODD_TEXTS) * self._chance.randrange(1, 4)
        if kind == 5:
            return [self._value(depth + 1) for _ in range(self._chance.randrange(4))]
        names = [self._chance.choice(ODD_TEXTS) + str(number) for number in range(self._chance.randrange(4))]
        return {name: self._value(depth + 1) for name in names}


def seed_item(draft: Draft, chance: random.Random) -> Message:
    """How the seed dialect spells a draft: any order of names and members, names repeated."""
    names = list(draft.partitions) + chance.choices(draft.partitions, k=chance.randrange(2) if draft.partitions else 0)
    chance.shuffle(names)
    members = list(draft.event.items())
    chance.shuffle(members)
    return {"id": draft.id, "partitions": names, "event": dict(members)} | _condition(draft, "if_watermark")


def _condition(draft: Draft, name: str) -> Message:
    return {} if draft.if_watermark is None else {name: draft.if_watermark}


def project_item(draft: Draft, client_id: str) -> Message:
    """How 2.x spells a draft of its project."""
    event = draft.event
    return {
        "id": draft.id,
        "projectId": draft.partitions[0],
        "partition": event["partition"],
        "type": event["type"],
        "schemaVersion": event["schemaVersion"],
        "payload": event["payload"],
        "meta": event["meta"] | {"clientId": client_id},
    } | _condition(draft, "ifWatermark")


class Outbox:
    """The drafts of one client that have no answer yet, in the order in which they were made."""

    def __init__(self, model: Model, client_id: str, where: str) -> None:
        self.waiting: list[Draft] = []
        self.places: set[int] = set()
        """The committed ids that this client was told in answers."""
        self._model = model
        self._client_id = client_id
        self._where = where

    def add(self, draft: Draft) -> None:
        """A draft to be sent."""
        self._model.drafts.append(draft)
        self.waiting.append(draft)

    def batch(self, start: int, most: int, line: int) -> list[Draft]:
        """The next drafts to go out on a connection; one id occurs once in a request."""
        chosen: dict[str, Draft] = {}
        for draft in self.waiting[start : start + most]:
            if draft.id in chosen:
                break
            chosen[draft.id] = draft
        for draft in chosen.values():
            self._model.sends(draft, self._client_id, line)
        return list(chosen.values())

    def settle(self, batch: Sequence[Draft], results: Sequence[Message], dialect: Dialect) -> None:
        """Take the answer to a batch: one result for each item, in their order."""
        named = [result["id"] for result in results]
        if named != [draft.id for draft in batch]:
            return self._model.blame(self._where, f"results for {named}, sent {[draft.id for draft in batch]}")
        blocker = ""
        for draft, result in zip(batch, results, strict=True):
            if blocker or result["status"] == "not_processed":
                is_blocked = result["status"] == "not_processed" and result["blockedById"] == blocker
                self._model.require(is_blocked, self._where, f"{result} after {blocker or 'nothing'} was rejected")
                continue
            self._settle_one(draft, result, dialect)
            if result["status"] == "rejected" and dialect is Dialect.PROJECT:
                blocker = draft.id
        self.waiting = [draft for draft in self.waiting if not draft.is_settled]
        return None

    def _settle_one(self, draft: Draft, result: Message, dialect: Dialect) -> None:
        if result["status"] == "rejected" and result["reason"] == "watermark_mismatch":
            return self._model.mismatches_watermark(draft, result.get("watermark"), self._where)
        if result["status"] == "rejected":
            return self._model.rejects(draft, result["reason"], result.get("errors"), self._where)
        place, time = "committed_id", "status_updated_at"
        if dialect is Dialect.PROJECT:
            place, time = "committedId", "serverTs"
        self.places.add(result[place])
        return self._model.commits(draft, result[place], result[time], self._where)
