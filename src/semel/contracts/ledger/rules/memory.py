"""Memory of clients: which sequences and keys are remembered, and until when.

Eviction is a function of the log alone. At every entry whose index is a multiple of the organization's interval two
cuts move up to the entry's own time less the time to live: commits before the one are forgotten, clients last seen
before the other are, with all of their commits. A cut never moves back, so nothing that was forgotten returns when the
time to live grows. With the fence on, the cut of clients stays: their last sequence is then never forgotten. No row is
deleted for this: rows before a cut do not count, and are freed later.
"""

from __future__ import annotations

from semel.contracts.ledger.commands import PreparedWrite
from semel.contracts.ledger.model import Place
from semel.contracts.ledger.rules.judgement import Case, Past
from semel.contracts.ledger.tables import (
    LEDGER_COMMIT,
    LEDGER_KEY,
    LEDGER_STREAM,
    CommitRow,
    KeyRow,
    OrgRow,
    PlaceRow,
    StreamRow,
)
from semel.engine.contract import View
from semel.store.table import Key


def moved_cuts(org: OrgRow) -> OrgRow:
    """An organization after its last entry: every `interval` entries, what is too old is cut off."""
    if org.entries % org.interval:
        return org
    cut = org.at_seconds - org.ttl_seconds
    client_cut = org.client_cut if org.fence else max(org.client_cut, cut)
    return org._replace(cut=max(org.cut, cut), client_cut=client_cut)


def stream_key(place: Place, client: bytes) -> Key:
    """The key of a client's sequence."""
    return (*place, client)


def living(org: OrgRow, stream: StreamRow | None) -> StreamRow | None:
    """The stream, unless it was evicted."""
    return None if stream is None or stream.last_seen < org.client_cut else stream


def is_in_window(org: OrgRow, stream: StreamRow, commit: CommitRow) -> bool:
    """Whether a commit is remembered by its time; the last one is while its stream is."""
    return commit.at >= org.cut or commit.sequence == stream.last


def is_compacted(place: PlaceRow, height: int) -> bool:
    """Whether a block's body is no longer kept."""
    return place.retain > 0 and height <= place.height - place.retain


def commit_keys(view: View, write: PreparedWrite, org: OrgRow) -> list[Key]:
    """The commits that a write has to be compared with; the rows they are found by must be loaded."""
    stream = living(org, view.get(LEDGER_STREAM, stream_key(write.place, write.client)))
    if stream is None:
        return []
    found = []
    if write.sequence is not None and write.sequence <= stream.last:
        found.append((*write.place, write.client, stream.life, write.sequence))
    key = _key_row(view, write)
    if key is not None and key.life == stream.life:
        found.append((*write.place, write.client, stream.life, key.sequence))
    return found


def case_of(view: View, write: PreparedWrite, org: OrgRow, place: PlaceRow) -> Case:
    """A write with everything that is remembered of its identity."""
    stream = living(org, view.get(LEDGER_STREAM, stream_key(write.place, write.client)))
    if stream is None:
        return Case(write.sequence, write.key, write.request, 0, None, None)
    by_key = by_sequence = None
    key = _key_row(view, write)
    if key is not None and key.life == stream.life:
        commit = _commit(view, stream, key.sequence)
        if commit is not None and is_in_window(org, stream, commit):
            by_key = _past(commit)
    if write.sequence is not None and write.sequence <= stream.last:
        commit = _commit(view, stream, write.sequence)
        if commit is not None and is_in_window(org, stream, commit):
            by_sequence = _past(commit)
        elif commit is not None and not is_compacted(place, commit.height):
            by_sequence = _past(commit)._replace(key=b"")  # its key is forgotten: the body alone speaks for it
    return Case(write.sequence, write.key, write.request, stream.last, by_key, by_sequence)


def _key_row(view: View, write: PreparedWrite) -> KeyRow | None:
    return view.get(LEDGER_KEY, (*write.place, write.client, write.key)) if write.key else None


def _commit(view: View, stream: StreamRow, sequence: int) -> CommitRow | None:
    return view.get(LEDGER_COMMIT, (stream.org, stream.vault, stream.client, stream.life, sequence))


def _past(commit: CommitRow) -> Past:
    return Past(commit.sequence, commit.key, commit.hash, commit.height)
