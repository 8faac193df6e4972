"""Requests by chance: few names, so that they meet; the same again, almost the same, and the quite wrong."""

from __future__ import annotations

import random
from collections.abc import Callable

from semel.surfaces.ledger.model import (
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    ExpireEntity,
    LedgerPlace,
    Operation,
    SetCondition,
    SetEntity,
)
from tests.ledger.model.model import MOST, TOLD_VALUE_BYTES, Ask, Model, Stream

CLIENTS = (b"ann", b"bob", b"ann/2")
ACTORS = (b"client:ann", b"user:789", b"system:gc")
LEADERS = (b"n1", b"n2")
NEIGHBOURS = (b"user:1", b"k587", b"k2591003", b"k75997", b"k401923", b"k1161659", b"k2877873")
"""Keys of one bucket; the first 13, 25 and 19 bits of the paths of some are the same, so that its tree is deep."""
ENTITIES = (b"a", b"ab", b"user:2", "käse".encode(), b"z" * 300, *NEIGHBOURS)
LARGE = tuple(letter * (TOLD_VALUE_BYTES + 1) for letter in (b"y", b"w"))
VALUES = (b"", b"bc", b"c", b"one", b"two", b"x" * TOLD_VALUE_BYTES, *LARGE)
RELATIONS = (
    (b"doc:1", b"viewer", b"user:1"),
    (b"doc:1", b"viewer", b"group:2#member"),
    (b"doc:12", b"owner", b"user:1"),
)
NOWHERE = (LedgerPlace(1), LedgerPlace(1, 7))
RECENT = 12


class Requests:
    """Draws one write after the other, with an eye on what the model holds."""

    def __init__(self, chance: random.Random, model: Model) -> None:
        self._chance = chance
        self._model = model
        self._asked: dict[LedgerPlace, list[Ask]] = {}
        self._keys = [bytes([number]) * 16 for number in range(1, 9)]

    def draw(self) -> Ask:
        """The next one; whoever sends it writes it down here."""
        place = self._chance.choice(self._places())
        asked = self._asked.setdefault(place, [])
        draw = self._chance.random()
        if not asked or draw < 0.45:
            ask = self._fresh(place)
        else:
            ask = self._chance.choice(asked[-RECENT:] if draw < 0.85 else asked)
            ask = self._again(ask) if draw < 0.65 else self._chance.choice(self._twists)(self, ask)
        asked.append(ask)
        return ask

    def again(self, ask: Ask) -> Ask:
        """What a client that heard nothing sends: the same, of which a server makes another attempt."""
        return self._again(ask)

    def _places(self) -> list[LedgerPlace]:
        places = [scope.place for org in self._model.orgs.values() for scope in org.scopes.values()]
        return [*places, *places, *places, *places, *places, *NOWHERE] if self._chance.random() < 0.1 else places

    def _again(self, ask: Ask) -> Ask:
        chance = self._chance
        actor, leader = chance.choice(ACTORS), chance.choice(LEADERS)
        with_proof = chance.random() < 0.3
        return ask._replace(actor=actor, leader=leader, chance=chance.randbytes(10), with_proof=with_proof)

    def _fresh(self, place: LedgerPlace) -> Ask:
        """Something new by its client's count, mostly."""
        client = self._chance.choice(CLIENTS)
        mode = self._chance.choice(("sequence", "sequence", "both", "both", "key", "key", "neither"))
        sequence = self._next(place, client) if mode in ("sequence", "both") else None
        key = self._key() if mode in ("both", "key") else self._chance.choice((b"", bytes(16)))
        if mode == "neither" and self._chance.random() < 0.9:
            sequence = self._odd_sequence(place, client)
        ask = Ask(place, client, sequence, key, self._operations(place), b"", b"", b"")
        return self._again(ask)

    def _key(self) -> bytes:
        return self._chance.choice(self._keys) if self._chance.random() < 0.4 else self._chance.randbytes(16)

    def _stream(self, place: LedgerPlace, client: bytes) -> Stream:
        org = self._model.orgs.get(place.org)
        return (org.streams.get((place.vault, client)) if org else None) or Stream()

    def _next(self, place: LedgerPlace, client: bytes) -> int:
        return min(MOST, self._stream(place, client).last + 1)

    def _odd_sequence(self, place: LedgerPlace, client: bytes) -> int:
        last = self._stream(place, client).last
        old = self._chance.randrange(1, last + 1) if last else 1
        return self._chance.choice((old, old, old, 1, max(1, last), last + 2, last + 3, last + 64, last + 66, MOST))

    # -- Almost the same ----------------------------------------------------------------------------------------------

    def _other_operations(self, ask: Ask) -> Ask:
        return self._again(ask)._replace(operations=self._operations(ask.place))

    def _other_split(self, ask: Ask) -> Ask:
        """The same bytes in other places: keys and values that would run together without their lengths."""
        moved = tuple(self._moved(operation) for operation in ask.operations)
        return self._again(ask)._replace(operations=moved)

    @staticmethod
    def _moved(operation: Operation) -> Operation:
        if isinstance(operation, SetEntity) and operation.value:
            first = operation.value[:1]
            return operation._replace(key=operation.key + first, value=operation.value[1:])
        return operation

    def _other_sequence(self, ask: Ask) -> Ask:
        draw = self._chance.random()
        sequence = self._next(ask.place, ask.client) if draw < 0.5 else self._odd_sequence(ask.place, ask.client)
        return self._again(ask)._replace(sequence=sequence)

    def _without_sequence(self, ask: Ask) -> Ask:
        return self._again(ask)._replace(sequence=None)

    def _other_key(self, ask: Ask) -> Ask:
        return self._again(ask)._replace(key=self._key())

    def _without_key(self, ask: Ask) -> Ask:
        return self._again(ask)._replace(key=self._chance.choice((b"", bytes(16))))

    def _other_client(self, ask: Ask) -> Ask:
        return self._again(ask)._replace(client=self._chance.choice(CLIENTS))

    _twists: tuple[Callable[[Requests, Ask], Ask], ...] = (
        _other_operations,
        _other_split,
        _other_sequence,
        _without_sequence,
        _other_key,
        _without_key,
        _other_client,
    )

    # -- Operations ---------------------------------------------------------------------------------------------------

    def _operations(self, place: LedgerPlace) -> tuple[Operation, ...]:
        count = self._chance.choice((1, 1, 1, 2, 3, 7))
        return tuple(self._operation(place) for _ in range(count))

    def _operation(self, place: LedgerPlace) -> Operation:
        chance = self._chance
        key = chance.choice(ENTITIES)
        draw = chance.random()
        if place.vault and draw < 0.35:
            return chance.choice((CreateRelationship, CreateRelationship, DeleteRelationship))(
                *chance.choice(RELATIONS)
            )
        if draw > 0.9:
            return chance.choice((DeleteEntity(key), ExpireEntity(key, chance.randrange(100))))
        return SetEntity(key, chance.choice(VALUES), self._expiry(place), self._condition(place, key))

    def _expiry(self, place: LedgerPlace) -> int:
        """Never, long ago, or about now."""
        org = self._model.orgs.get(place.org)
        now = org.at // 1000 - 2 if org else 0
        return self._chance.choice((0, 0, 0, 0, 1, now + self._chance.randrange(8), MOST))

    def _condition(self, place: LedgerPlace, key: bytes) -> SetCondition | None:
        chance = self._chance
        org = self._model.orgs.get(place.org)
        scope = org.scopes.get(place.vault) if org else None
        there = scope.states[-1].get(key) if scope else None
        version = there.version if there and chance.random() < 0.7 else chance.randrange(30)
        value = there.value if there and chance.random() < 0.7 else chance.choice(VALUES)
        return chance.choice(
            (
                *(None,) * 8,
                SetCondition(ConditionKind.NOT_EXISTS),
                SetCondition(ConditionKind.MUST_EXIST),
                SetCondition(ConditionKind.VERSION, version=version),
                SetCondition(ConditionKind.VALUE, value=value),
            )
        )
