"""Conversion of rows to value types."""

from __future__ import annotations

from semel.contracts.ledger.commands import Committed, Org, Quota, Vault
from semel.contracts.ledger.model import Header, Instant, Place, Status, Transaction
from semel.contracts.ledger.rules.chain import block_hash, genesis_header
from semel.contracts.ledger.rules.encoding import decode_operations
from semel.contracts.ledger.tables import BlockRow, BodyRow, OrgRow, PlaceRow


def header_of(block: BlockRow) -> Header:
    """The header in a row."""
    return Header(
        block.height,
        Place(block.org, block.vault),
        block.previous_hash,
        block.tx_root,
        block.state_root,
        Instant(block.at_seconds, block.at_nanos),
        block.term,
        block.committed_index,
        block.leader,
    )


def transaction_of(block: BlockRow, body: BodyRow) -> Transaction:
    """The transaction in a block."""
    at = Instant(block.at_seconds, block.at_nanos)
    return Transaction(body.id, body.client, body.sequence, decode_operations(body.operations), at, body.actor)


def committed_of(block: BlockRow, body: BodyRow) -> Committed:
    """Both."""
    return Committed(transaction_of(block, body), header_of(block))


def genesis_of(place: PlaceRow) -> Header:
    """The genesis header of a place."""
    at = Instant(place.created_seconds, place.created_nanos)
    return genesis_header(Place(place.org, place.vault), at, place.created_term, place.created_index)


def is_head(place: PlaceRow, block: BlockRow | None) -> bool:
    """Whether the last block of a place is the one that its tip names; a place without blocks has none."""
    if place.height == 0:
        return block is None
    if block is None or (block.height, block.state_root) != (place.height, place.state_root):
        return False
    return block_hash(header_of(block)) == place.tip_hash


def org_of(row: OrgRow) -> Org:
    """An organization."""
    return Org(
        row.org,
        row.name,
        Status(row.status),
        Instant(row.created_seconds, row.created_nanos),
        row.entries,
        row.interval,
        row.ttl_seconds,
        bool(row.fence),
        row.vaults,
        Quota(row.quota_bytes, row.quota_vaults, row.quota_writes),
    )


def vault_of(row: PlaceRow) -> Vault:
    """A vault."""
    created = Instant(row.created_seconds, row.created_nanos)
    place = Place(row.org, row.vault)
    return Vault(place, Status(row.status), row.height, row.state_root, row.retain, created)
