"""Calls over HTTP besides reads: writes, organizations and vaults, and `blocks:watch`.

`blocks:watch` sends blocks as server-sent events. The id of an event is the height of its block, so that a client
continues where it stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import orjson

from semel.engine.contract import EngineError
from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.server.http.answer import JSON, NO_STORE, Answer, BodyWriter, ClientGoneError, StreamedAnswer
from semel.server.http.request import Exchange, Request
from semel.server.thread_pool import COPIED_BYTES, apart, is_small
from semel.surfaces.ledger.block_watch import BlockWatch
from semel.surfaces.ledger.commands import (
    OrgSettings,
    PreparedWrite,
    WriteCommitted,
    WriteDeclined,
    WriteErrorCode,
    WriteReplayed,
    invalid,
)
from semel.surfaces.ledger.exchange import REPLAYED, LedgerRequest, answer_json
from semel.surfaces.ledger.limits import MAX_BULK
from semel.surfaces.ledger.model import BlockHeader, LedgerPlace, LedgerStatus
from semel.surfaces.ledger.pagination import list_orgs, list_vaults
from semel.surfaces.ledger.reading import org, tip, tx_proof, vault
from semel.surfaces.ledger.refusals import engine_refusal
from semel.surfaces.ledger.service import LedgerService
from semel.surfaces.ledger.shaped_write import learn_write
from semel.surfaces.ledger.verdicts import DraftedWrite, WriteVerdict
from semel.surfaces.ledger.wire import answers
from semel.surfaces.ledger.wire.answers import (
    announcement_json,
    declined_json,
    plain_success,
    problem_body,
    success_json,
)
from semel.surfaces.ledger.wire.bodies import (
    WriteDraft,
    creation_key,
    parse_batch,
    parse_bulk,
    parse_org,
    parse_org_change,
    parse_vault,
    parse_vault_change,
    parse_write,
)
from semel.surfaces.ledger.wire.plain_bodies import plain_bulk, plain_write
from semel.surfaces.ledger.wire.urls import parse_nothing, parse_page, parse_watch

Parse = Callable[[bytes, HeaderFields, int], WriteDraft]

STATUSES = {
    WriteErrorCode.KEY_EXISTS: 412,
    WriteErrorCode.KEY_NOT_FOUND: 412,
    WriteErrorCode.VERSION_MISMATCH: 412,
    WriteErrorCode.VALUE_MISMATCH: 412,
    WriteErrorCode.ALREADY_COMMITTED: 200,
    WriteErrorCode.IDEMPOTENCY_KEY_REUSED: 409,
    WriteErrorCode.SEQUENCE_GAP: 409,
}


class LedgerWriteCalls:
    """The HTTP handlers of writes."""

    def __init__(self, service: LedgerService) -> None:
        self._service = service

    async def write(self, request: LedgerRequest) -> Answer:
        """POST: write one transaction."""
        return await self._write(request, parse_write)

    async def batch(self, request: LedgerRequest) -> Answer:
        """POST: write one transaction whose operations come in groups."""
        return await self._write(request, parse_batch)

    async def bulk(self, request: LedgerRequest) -> Answer:
        """POST: write many transactions, each with its own identity and verdict."""
        parse_nothing(request.query)
        if request.fields.get(b"idempotency-key") is not None:
            message = "Each transaction has its own key: send no Idempotency-Key header."
            raise invalid(message, "Idempotency-Key")
        size = request.body.size
        body = request.body.take()
        drafts = self._plain_bulk(request, body)
        if drafts is None:
            drafts = await apart(size, self._bulk, request, body)
        del body
        proofs = [isinstance(draft, DraftedWrite) and draft.wants_proof for draft in drafts]
        verdicts = await self._service.write_many(request.asked, request.place, drafts)
        del drafts
        for verdict in verdicts:
            if isinstance(verdict, WriteReplayed):
                self._service.was_answered(verdict.committed)
        return await apart(size, _bulk_answer, verdicts, proofs, most=COPIED_BYTES)

    def _plain_bulk(self, request: LedgerRequest, body: bytes) -> list[DraftedWrite | Refused] | None:
        if not is_small(len(body), COPIED_BYTES):
            return None
        found = plain_bulk(body, MAX_BULK, request.place, self._service.limits)
        return None if found is None else [DraftedWrite(prepared, False) for prepared in found]

    def _bulk(self, request: LedgerRequest, body: bytes) -> list[DraftedWrite | Refused]:
        found = parse_bulk(body, self._service.limits.max_operations)
        return [draft if isinstance(draft, Refused) else self._drafted(request, draft) for draft in found]

    def _drafted(self, request: LedgerRequest, draft: WriteDraft) -> DraftedWrite | Refused:
        try:
            prepared = self._service.prepare(request.place, draft.client, draft.sequence, draft.key, draft.operations)
        except Refused as refused:
            return refused
        return DraftedWrite(prepared, draft.wants_proof)

    async def _write(self, request: LedgerRequest, parse: Parse) -> Answer:
        parse_nothing(request.query)
        size = request.body.size
        wants_proof, prepared = await apart(size, self._prepare, request, parse)
        committing = self._service.write(request.asked, prepared, with_proof=wants_proof)
        del prepared  # free the encoded operations: the answer does not need them
        return await apart(size, self.answer_of, await committing, wants_proof)

    def answer_of(self, answer: WriteCommitted | WriteReplayed | WriteDeclined, wants_proof: bool) -> Answer:
        """The answer for the verdict on one transaction."""
        if isinstance(answer, WriteReplayed):
            self._service.was_answered(answer.committed)  # the full answer is sent: remember it
        return _write_answer(answer, wants_proof)

    def _prepare(self, request: LedgerRequest, parse: Parse) -> tuple[bool, PreparedWrite]:
        body, most = request.body.take(), self._service.limits.max_operations
        if parse is parse_write and is_small(len(body)) and request.fields.get(b"idempotency-key") is None:
            plain = plain_write(body, request.place, self._service.limits)
            if plain is not None:
                learn_write(self._service, self, request)
                return False, plain
        draft = parse(body, request.fields, most)
        prepared = self._service.prepare(request.place, draft.client, draft.sequence, draft.key, draft.operations)
        return draft.wants_proof, prepared


def _write_answer(answer: WriteCommitted | WriteReplayed | WriteDeclined, wants_proof: bool) -> Answer:
    if isinstance(answer, WriteCommitted) and not wants_proof:
        return Answer(200, [JSON, NO_STORE], b'{"success":%s}' % plain_success(answer.committed))
    if isinstance(answer, WriteDeclined):
        is_done = answer.code is WriteErrorCode.ALREADY_COMMITTED
        headers = (REPLAYED,) if is_done else ()
        return answer_json({"error": declined_json(answer)}, STATUSES[answer.code], *headers)
    headers = (REPLAYED,) if isinstance(answer, WriteReplayed) else ()
    return answer_json({"success": _success_json(answer, wants_proof)}, 200, *headers)


def _success_json(answer: WriteCommitted | WriteReplayed, wants_proof: bool) -> dict[str, Any]:
    has_proof = wants_proof or (isinstance(answer, WriteReplayed) and answer.with_proof)
    return success_json(answer.committed, tx_proof(answer.committed) if has_proof else None)


def _bulk_answer(verdicts: Sequence[WriteVerdict], proofs: Sequence[bool]) -> Answer:
    results = b",".join(map(_result, verdicts, proofs))
    return Answer(200, [JSON, NO_STORE], b'{"results":[%s]}' % results)


def _result(verdict: WriteVerdict, wants_proof: bool) -> bytes:
    """One verdict of many: the status and the body that the transaction alone would have had."""
    if verdict.__class__ is WriteCommitted and not wants_proof:
        return b'{"status":200,"success":%s}' % plain_success(verdict.committed)
    told: dict[str, Any]
    if isinstance(verdict, WriteCommitted | WriteReplayed):
        told = {"status": 200, "success": _success_json(verdict, wants_proof)}
    elif isinstance(verdict, WriteDeclined):
        told = {"status": STATUSES[verdict.code], "error": declined_json(verdict)}
    else:
        refusal = engine_refusal(verdict) if isinstance(verdict, EngineError) else verdict.refusal
        told = {"status": refusal.status, "problem": orjson.Fragment(problem_body(refusal))}
    is_done = isinstance(verdict, WriteDeclined) and verdict.code is WriteErrorCode.ALREADY_COMMITTED
    if is_done or isinstance(verdict, WriteReplayed):
        told["replayed"] = True
    return orjson.dumps(told)


T = TypeVar("T")


class LedgerAdminCalls:
    """The HTTP handlers of admin calls."""

    def __init__(self, service: LedgerService, node: str) -> None:
        self._service = service
        self._node = node

    async def list_orgs(self, request: LedgerRequest) -> Answer:
        """List the organizations that the caller may read."""
        wanted = parse_page(request.query)

        def look(reading: Reading) -> Answer:
            page = list_orgs(reading, *wanted, lambda slug: self._service.sees(request.asked, LedgerPlace(slug)))
            return answer_json(
                answers.list_json("organizations", [answers.org_json(one) for one in page.items], page.token)
            )

        return await self._service.read(request.asked, None, look)

    async def make_org(self, request: LedgerRequest) -> Answer:
        """Create an organization."""
        parse_nothing(request.query)
        draft, key = await _parsed(request, parse_org), creation_key(request.fields)
        made = await self._service.make_org(request.asked, draft.name, key, draft.quota)
        return answer_json(answers.made_org_json(made.place), 200, *((REPLAYED,) if made.is_replay else ()))

    async def show_org(self, request: LedgerRequest) -> Answer:
        """Get one organization, which may be deleted."""
        parse_nothing(request.query)

        def look(reading: Reading) -> Answer:
            return answer_json(answers.org_json(org(reading, request.place.org)))

        return await self._service.read(request.asked, request.place, look)

    async def change_org(self, request: LedgerRequest) -> Answer:
        """Change the settings or the status of an organization."""
        parse_nothing(request.query)
        settings = await _parsed(request, parse_org_change)
        changed = await self._service.change_org(request.asked, request.place.org, settings)
        return answer_json(answers.org_json(changed))

    async def end_org(self, request: LedgerRequest) -> Answer:
        """Delete an organization."""
        parse_nothing(request.query)
        await self._service.change_org(request.asked, request.place.org, OrgSettings(status=LedgerStatus.DELETED))
        return answer_json({})

    async def list_vaults(self, request: LedgerRequest) -> Answer:
        """List the vaults of an organization that the caller may read."""
        wanted = parse_page(request.query)

        def look(reading: Reading) -> Answer:
            page = list_vaults(
                reading, request.place.org, *wanted, lambda place: self._service.sees(request.asked, place)
            )
            told = [answers.vault_json(one, self._node) for one in page.items]
            return answer_json(answers.list_json("vaults", told, page.token))

        return await self._service.read(request.asked, request.place, look)

    async def make_vault(self, request: LedgerRequest) -> Answer:
        """Create a vault."""
        parse_nothing(request.query)
        retain, key = await _parsed(request, parse_vault), creation_key(request.fields)
        made = await self._service.make_vault(request.asked, request.place.org, retain, key)
        told = answers.made_vault_json(made.place, made.header)
        return answer_json(told, 200, *((REPLAYED,) if made.is_replay else ()))

    async def show_vault(self, request: LedgerRequest) -> Answer:
        """Get one vault, which may be deleted."""
        parse_nothing(request.query)

        def look(reading: Reading) -> Answer:
            return answer_json(answers.vault_json(vault(reading, request.place), self._node))

        return await self._service.read(request.asked, request.place, look)

    async def change_vault(self, request: LedgerRequest) -> Answer:
        """Change the status of a vault."""
        parse_nothing(request.query)
        status = await _parsed(request, parse_vault_change)
        changed = await self._service.change_vault(request.asked, request.place, status)
        return answer_json(answers.vault_json(changed, self._node))

    async def end_vault(self, request: LedgerRequest) -> Answer:
        """Delete a vault."""
        parse_nothing(request.query)
        await self._service.change_vault(request.asked, request.place, LedgerStatus.DELETED)
        return answer_json({})


async def _parsed(request: LedgerRequest, parse: Callable[[bytes], T]) -> T:
    return await apart(request.body.size, parse, request.body.take())


_log = logging.getLogger("semel.ledger")

KEEPALIVE_SECONDS = 15.0
"""Seconds without a block after which a keep-alive comment is sent."""
LAST_WORDS_SECONDS = 2.0
"""Seconds for a slow client to receive the reason before it is disconnected."""
UNSENT_BYTES = 16 * 1024
_KEEPALIVE = b":\n\n"
_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]


class LedgerBlockStream:
    """Sends new blocks as server-sent events (SSE)."""

    def __init__(self, service: LedgerService) -> None:
        self._service = service

    async def watch(self, request: LedgerRequest) -> StreamedAnswer:
        """GET: start the stream. Refusals are raised before it begins."""
        start = parse_watch(request.query, request.fields.get(b"last-event-id"))
        if request.http.version == "1.0":
            raise invalid("An event stream needs HTTP/1.1.", "version")
        await self._service.read(request.asked, request.place, lambda reading: tip(reading, request.place))
        watch = self._service.follow(request.asked, request.place, start)
        request.http.is_live = True
        seat = self._service.context.live_reader(request.http.principal)
        return StreamedAnswer([*_HEADERS], partial(_follow, watch, request.http), seat.close)


async def _follow(watch: BlockWatch, request: Request, writer: BodyWriter) -> None:
    """Send pages until the client disconnects or the server ends the watch; the last line then has the reason."""
    exchange = request.exchange
    exchange.bound_unsent(UNSENT_BYTES)
    why = b""
    with watch:
        try:
            while not watch.is_over:
                found = await watch.next(KEEPALIVE_SECONDS)
                if not watch.is_over:
                    await watch.deliver(writer.write(b"".join(map(_event, found)) or _KEEPALIVE))
        except (Refused, EngineError) as ended:
            why = b": %s\n\n" % str(ended).encode("ascii", "replace")
        except (ClientGoneError, ConnectionError, asyncio.CancelledError):
            raise
        except Exception:  # noqa: BLE001 - the answer has begun: the stream ends, and the client comes again
            _log.exception("fault in a stream of blocks", extra=request.log_facts())
    if why:
        await _say_why(why, exchange, writer)


async def _say_why(why: bytes, exchange: Exchange, writer: BodyWriter) -> None:
    try:
        async with asyncio.timeout(LAST_WORDS_SECONDS):
            await writer.write(why)
    except TimeoutError:  # the client does not read any more
        exchange.abort()


def _event(header: BlockHeader) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (header.height, orjson.dumps(announcement_json(header)))
