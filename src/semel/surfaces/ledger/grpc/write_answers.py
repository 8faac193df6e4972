"""Answers of writes over gRPC, serialized: successes and replays of single writes, and verdicts of many."""

from __future__ import annotations

from semel.engine.contract import EngineError
from semel.surfaces.ledger.commands import (
    CommittedTransaction,
    WriteCommitted,
    WriteDeclined,
    WriteErrorCode,
    WriteReplayed,
)
from semel.surfaces.ledger.grpc.answers import declined_pb, parts_of, refusal_pb, success_parts
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from semel.surfaces.ledger.reading import tx_proof
from semel.surfaces.ledger.refusals import engine_refusal, own_refusal
from semel.surfaces.ledger.verdicts import WriteVerdict

Response = type[pb.WriteResponse] | type[pb.BatchWriteResponse] | type[pb.WriteVerdict]

_COMMITTED = "Committed before; nothing was executed now. The first answer is in `original`."


def success_of(committed: CommittedTransaction, has_proof: bool, response: Response) -> bytes:
    kind = pb.BatchWriteSuccess if response is pb.BatchWriteResponse else pb.WriteSuccess
    success = success_parts(kind, committed, tx_proof(committed) if has_proof else None)
    return b"".join(parts_of(response(), success=[success]))


def original_of(replayed: WriteReplayed, has_proof: bool, response: Response) -> bytes:
    committed = replayed.committed
    error = pb.WriteError(
        code=pb.WRITE_ERROR_CODE_ALREADY_COMMITTED,
        message=_COMMITTED,
        committed_tx_id=pb.TxId(id=committed.transaction.id),
        committed_block_height=committed.header.height,
        assigned_sequence=committed.transaction.sequence,
    )
    original = success_parts(pb.WriteSuccess, committed, tx_proof(committed) if has_proof else None)
    return b"".join(parts_of(response(), error=[parts_of(error, original=[original])]))


def verdict_of(verdict: WriteVerdict, wants_proof: bool, was_answered: bool) -> bytes:
    """The verdict on one of many transactions; `was_answered` is for replays of answers that this process has given."""
    if isinstance(verdict, WriteCommitted):
        return success_of(verdict.committed, wants_proof, pb.WriteVerdict)
    if isinstance(verdict, WriteReplayed):
        has_proof = wants_proof or verdict.with_proof
        if was_answered:
            return success_of(verdict.committed, has_proof, pb.WriteVerdict) + _REPLAYED
        return original_of(verdict, has_proof, pb.WriteVerdict) + _REPLAYED
    if isinstance(verdict, WriteDeclined):
        is_done = verdict.code is WriteErrorCode.ALREADY_COMMITTED
        return pb.WriteVerdict(error=declined_pb(verdict), replayed=is_done).SerializeToString()
    refusal = engine_refusal(verdict) if isinstance(verdict, EngineError) else own_refusal(verdict.refusal)
    return pb.WriteVerdict(refusal=refusal_pb(refusal)).SerializeToString()


_REPLAYED = pb.WriteVerdict(replayed=True).SerializeToString()
"""Messages in protobuf can be joined field by field."""
