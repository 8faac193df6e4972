"""The answers of the real rules in the words of the model, and where what is stored differs from it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from semel.engine.reading import Reading
from semel.kernel import errors
from semel.kernel.errors import Refusal
from semel.surfaces.ledger import commands as real
from semel.surfaces.ledger import pagination, proofs, reading
from semel.surfaces.ledger.limits import LedgerLimits
from semel.surfaces.ledger.model import Entity, LedgerPlace
from semel.surfaces.ledger.validation import prepare, write_command
from tests.ledger.model import hashing
from tests.ledger.model.model import Ask, Declined, Model, Organization, Refused, Scope, Wrote
from tests.ledger.model.requests import NEIGHBOURS

PAGE = 1_000


def command_of(ask: Ask) -> real.WriteCommand | Refusal:
    """What the server makes of a request; its encoding and hash must be those of the model."""
    try:
        command = write_command(LedgerLimits(), prepare(LedgerLimits(), *ask[:5]), *ask[5:8], with_proof=ask.with_proof)
    except errors.Refused as refused:
        return refused.refusal
    assert command.write.encoded == hashing.operations_bytes(ask.operations), ask
    assert command.write.request == hashing.request_hash(ask.operations), ask
    return command


def told_of(asked: Any, answer: Any) -> Any:
    """An answer as the model would give it, but for the rows of those that tell of a block."""
    match answer:
        case real.WriteCommitted():
            return Wrote("", True, *answer.committed, with_proof=asked.with_proof)
        case real.WriteReplayed():
            return Wrote("", False, *answer.committed, with_proof=answer.with_proof)
        case real.WriteDeclined():
            return Declined(
                answer.code.name,
                answer.row,
                answer.key,
                answer.current_version,
                answer.current_value,
                answer.tx_id,
                answer.height,
                answer.sequence,
                answer.last,
                tuple(sorted(answer.details.items())),
            )
        case Refusal():
            return Refused(answer.name)
        case real.Org():
            return answer.slug, answer.entries
        case real.Vault():
            return answer.place, answer.status.name
        case real.CreatedPlace():
            assert answer.header is not None
            return answer.place, answer.header._replace(leader=b"")
    return answer


def without_row(expected: Any) -> Any:
    """The model's answer as far as it can be told from outside."""
    return expected._replace(row="") if isinstance(expected, Wrote) else expected


def differences(look: Reading, model: Model, chance: random.Random) -> Iterator[str]:
    """Where reading and model say different things."""
    for org in model.orgs.values():
        told = reading.org(look, org.slug)
        facts = told.name, told.entries, told.eviction_interval, told.ttl_seconds, told.fence, told.status.name
        if facts != (org.name, org.entries, *org.settings, org.status):
            yield f"organization {facts}, expected {org.name, org.entries, org.settings, org.status}"
        for scope in org.scopes.values():
            yield from _scope_differences(look, model, org, scope, chance)


def _scope_differences(
    look: Reading, model: Model, org: Organization, scope: Scope, chance: random.Random
) -> Iterator[str]:
    place = scope.place
    if scope.status == "DELETED":
        return
    tip = reading.tip(look, place)
    newest = scope.blocks[-1].header if scope.blocks else None
    root = hashing.state_root(scope.states[-1].values())
    wanted = scope.height, hashing.block_hash(newest) if newest else None, root
    if (tip.height, tip.block_hash if newest else None, tip.state_root) != wanted:
        yield f"the tip of {place} is {tip}, expected {wanted}"
    for client in sorted({name for vault, name in org.streams if vault == place.vault} | {b"nobody", b"ann"}):
        state, expected = reading.client_state(look, place, client), model.client_state(place, client)
        if tuple(state) != expected:
            yield f"the state of {client!r} in {place} is {state}, expected {expected}"
    there = {item.key: item for item in _entities(look, place)}
    expected_state = {key: item for key, item in scope.states[-1].items() if key[:1] != b"\x00"}
    if there != expected_state:
        yield f"{place} holds {there}, expected {expected_state}"
    if place.vault:
        related = {hashing.relationship_key(*triple) for triple in _relationships(look, place)}
        if related != {key for key in scope.states[-1] if key[:1] == b"\x00"}:
            yield f"the relationships of {place} are {related}"
    if scope.blocks:
        yield from _past_differences(look, scope, chance)


def _entities(look: Reading, place: LedgerPlace) -> list[Entity]:
    page = pagination.list_entities(look, place, b"", None, True, PAGE, "")
    return list(page.items)


def _relationships(look: Reading, place: LedgerPlace) -> list[tuple[bytes, bytes, bytes]]:
    page = pagination.list_relationships(look, place, None, None, None, None, PAGE, "")
    return list(page.items)


def _past_differences(look: Reading, scope: Scope, chance: random.Random) -> Iterator[str]:
    """A block by its height and by its transaction, and an entity as it was."""
    height = chance.randrange(1, scope.height + 1)
    wanted, place = scope.blocks[height - 1], scope.place
    body = wanted.transaction if scope.has_body(height) else None
    block = reading.block(look, place, height)
    if block is None or tuple(block) != (wanted.header, body):
        yield f"block {height} of {place} is {block}, expected {wanted.header} {body}"
    found = reading.transaction(look, place, wanted.transaction.id)
    if (found and tuple(found)) != (body and (body, wanted.header)):
        yield f"transaction {wanted.transaction.id.hex()} is {found}, expected {body}"
    yield from _entity_differences(look, scope, height, chance)


def _entity_differences(look: Reading, scope: Scope, height: int, chance: random.Random) -> Iterator[str]:
    """An entity as it was, and the proof of it."""
    place, header = scope.place, scope.blocks[height - 1].header
    key = chance.choice([*scope.states[height], *scope.states[-1], b"nothing", *NEIGHBOURS])
    was = scope.states[height].get(key)
    visible = was if was is None or not was.expires_at or was.expires_at > header.at.seconds else None
    if not scope.has_state(height):
        for function in (reading.read_entity, proofs.prove_entity):
            try:
                yield f"{key!r} of {place} at {height} is {function(look, place, key, height)}, expected no answer"
            except errors.Refused as refused:
                if refused.refusal.code != "ledger:height_unavailable":
                    yield f"{key!r} of {place} at {height} is refused with {refused.refusal}"
        return
    found = reading.read_entity(look, place, key, height)
    if found != (visible, height):
        yield f"{key!r} of {place} at {height} is {found}, expected {visible}"
    proved = proofs.prove_entity(look, place, key, height)
    fault = hashing.proof_fault(proved.proof, header.state_root)
    if (proved.entity, proved.header, proved.proof.entity, proved.proof.key) != (visible, header, was, key) or fault:
        yield f"{key!r} of {place} at {height} is proved by {proved}: {fault}"
