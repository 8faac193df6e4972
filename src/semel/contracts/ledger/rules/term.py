"""The term after the epoch of the store is raised: blocks name the history that they belong to."""

from __future__ import annotations

from semel.contracts.epoch import Rows
from semel.contracts.ledger.rules.log import REGISTRY
from semel.contracts.ledger.tables import ALONE, LEDGER_TERM
from semel.engine.contract import View
from semel.store.protocol import Lock

TERM_LOCK = Lock(REGISTRY)
"""Held alone: no block is made while the term changes."""


def raised_term(rows: Rows, epoch: int) -> int:
    """The term of blocks in a new epoch: above every term that another history of the ledger can have had."""
    row = rows.get(LEDGER_TERM, ALONE)
    return 0 if row is None else max(row.term + 1, epoch)


def raise_term(view: View, epoch: int) -> None:
    """Raise it; a ledger that no server has opened has no term yet."""
    row = view.get(LEDGER_TERM, ALONE)
    if row is not None:
        view.put(LEDGER_TERM, row._replace(term=raised_term(view, epoch)))
