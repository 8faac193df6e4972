"""Answers to repeated or invalid writes: nothing is changed by any of them."""

from __future__ import annotations

from semel.contracts.ledger.commands import Code, Committed, Declined, Refusal, Replayed, WriteCommand
from semel.contracts.ledger.rules.judgement import Case, Past, Rule, Verdict, is_wrong_length
from semel.contracts.ledger.rules.records import committed_of
from semel.contracts.ledger.tables import LEDGER_BLOCK, LEDGER_BODY
from semel.engine.contract import View

Answer = Replayed | Declined | Refusal


def answer_known(view: View, command: WriteCommand, rule: Rule, case: Case) -> Answer:
    """The answer that a row gives without anything being carried out."""
    verdict = rule.verdict
    if verdict is Verdict.REFUSE:
        return Refusal("invalid_argument", _wrong_identity(case))
    if verdict is Verdict.ROTATE:
        return Refusal("failed_precondition", "This client id has used its last sequence: take another client id.")
    if verdict is Verdict.GAP:
        message = f"The last committed sequence is {case.last}: go on with {case.last + 1}."
        return Declined(Code.SEQUENCE_GAP, message, rule.row, last=case.last)
    if verdict is Verdict.UNVERIFIED:
        message = "This sequence was committed; what it held is no longer remembered."
        details = {"verified": "false"}
        return Declined(Code.ALREADY_COMMITTED, message, rule.row, sequence=case.sequence, details=details)
    past = case.by_key if case.by_key is not None else case.by_sequence
    assert past is not None, "every other row is about a commit that is remembered"
    replayed = _replayed(view, command, past)
    is_replay = verdict in (Verdict.REPLAY_KEY, Verdict.REPLAY_SEQUENCE)
    return replayed if is_replay else _declined(rule, case, replayed.committed)


def _declined(rule: Rule, case: Case, committed: Committed) -> Declined:
    tx_id, sequence, height = committed.transaction.id, committed.transaction.sequence, committed.header.height
    if rule.verdict is Verdict.TOLD_KEY:
        message = f"This key was committed with sequence {sequence}; the sequence sent now was not used."
        return Declined(
            Code.ALREADY_COMMITTED, message, rule.row, tx_id=tx_id, height=height, sequence=sequence, last=case.last
        )
    if rule.verdict is Verdict.TOLD_SEQUENCE:
        message = "This sequence was committed with the same operations under another key: the keys do not match."
        return Declined(Code.ALREADY_COMMITTED, message, rule.row, tx_id=tx_id, height=height, sequence=sequence)
    if rule.verdict is Verdict.REUSED_KEY:
        message = "This key was used for other operations: take a new key."
        return Declined(Code.IDEMPOTENCY_KEY_REUSED, message, rule.row, tx_id=tx_id, sequence=sequence)
    message = f"Sequence {sequence} was used for other operations."
    details = {"conflict": "sequence"}
    return Declined(Code.IDEMPOTENCY_KEY_REUSED, message, rule.row, tx_id=tx_id, sequence=sequence, details=details)


def _replayed(view: View, command: WriteCommand, past: Past) -> Replayed:
    where = (*command.write.place, past.height)
    block, body = view.get(LEDGER_BLOCK, where), view.get(LEDGER_BODY, where)
    assert block is not None, "headers are kept for ever"
    assert body is not None, "what is remembered is kept"
    return Replayed(committed_of(block, body), with_proof=bool(body.with_proof))


def _wrong_identity(case: Case) -> str:
    if is_wrong_length(case):
        return "An idempotency key has sixteen bytes."
    if case.sequence == 0:
        return "Sequences begin with 1."
    return "Send a sequence, an idempotency key, or both."
