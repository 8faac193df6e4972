"""The commands of the ledger, and their answers.

A command carries the ids, secrets and instants that its decision needs: a decision reads no clock and no randomness.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from semel.kernel.errors import Refused
from semel.surfaces.ledger.model import BlockHeader, LedgerPlace, LedgerStatus, LedgerTime, LedgerTransaction, Operation

CHANCE_BYTES = 10
"""Random bytes of a transaction id."""


class WriteErrorCode(Enum):
    """Domain errors of a write; the value is the number on the wire."""

    KEY_EXISTS = 1
    KEY_NOT_FOUND = 2
    VERSION_MISMATCH = 3
    VALUE_MISMATCH = 4
    ALREADY_COMMITTED = 5
    IDEMPOTENCY_KEY_REUSED = 6
    SEQUENCE_GAP = 7


class PreparedWrite(NamedTuple):
    """A transaction that was validated, encoded and hashed, which takes time if it is large."""

    place: LedgerPlace
    client: bytes
    sequence: int | None
    key: bytes
    """Sixteen bytes; empty without a key."""
    operations: tuple[Operation, ...]
    encoded: bytes
    """The encoded operations, as hashed."""
    request: bytes
    """The fingerprint of the request."""


class WriteCommand(NamedTuple):
    """Commit one transaction, once."""

    write: PreparedWrite
    actor: bytes
    leader: bytes
    chance: bytes
    with_proof: bool = False
    """Whether the answer and its replays include header, proof and transaction."""


class WriteMany(NamedTuple):
    """Commit many transactions of one organization in order, each once and with a verdict of its own."""

    writes: tuple[WriteCommand, ...]
    may_wait: bool = True
    """Whether a transaction may wait for earlier ones of its client that are queued."""


class WriteWaits(NamedTuple):
    """The transaction was not decided: queued ones of its client come first."""


class CommittedTransaction(NamedTuple):
    """A transaction and its block as stored; also for a replay."""

    transaction: LedgerTransaction
    header: BlockHeader


class WriteCommitted(NamedTuple):
    """The transaction was committed by this command."""

    committed: CommittedTransaction


class WriteReplayed(NamedTuple):
    """The transaction was committed before, with the same identity and operations."""

    committed: CommittedTransaction
    with_proof: bool = False
    """Whether the first answer carried a proof."""


class WriteDeclined(NamedTuple):
    """A domain error: nothing was changed. The code determines which members are set."""

    code: WriteErrorCode
    message: str
    row: str = ""
    """The row of the rule table that decided; empty if a condition failed."""
    key: bytes = b""
    current_version: int | None = None
    current_value: bytes | None = None
    tx_id: bytes | None = None
    height: int | None = None
    sequence: int | None = None
    last: int | None = None
    details: Mapping[str, str] = {}


class OrgSettings(NamedTuple):
    """Changes of the settings of an organization; None leaves a setting unchanged."""

    eviction_interval: int | None = None
    ttl_seconds: int | None = None
    fence: bool | None = None
    status: LedgerStatus | None = None


class OrgQuota(NamedTuple):
    """Limits of an organization, set at its creation; 0 is no limit for this organization."""

    max_storage_bytes: int = 0
    """Limit of bytes of keys and values in all places of the organization."""
    max_vaults: int = 0
    max_write_ops_per_sec: int = 0
    """Limit of transactions a second."""


NO_QUOTA = OrgQuota()


class CreateOrg(NamedTuple):
    """Create an organization; it gets the first free slug."""

    name: bytes
    slugs: tuple[int, ...]
    owner: bytes
    key: bytes
    """The caller and its idempotency key; empty without a key. A retry gets the first result."""
    quota: OrgQuota = NO_QUOTA


class CreateVault(NamedTuple):
    """Create a vault; `retain` is the number of block bodies to keep, 0 for all."""

    org: int
    slugs: tuple[int, ...]
    retain: int
    owner: bytes
    key: bytes


class ChangeOrg(NamedTuple):
    """Change the settings or the status of an organization."""

    org: int
    settings: OrgSettings


class ChangeVault(NamedTuple):
    """Change the status of a vault: active, read-only or deleted."""

    place: LedgerPlace
    status: LedgerStatus


class OpenTerm(NamedTuple):
    """Raise the term, at a start or after a change of the database timeline. The first term creates the secret."""

    era: bytes
    """The timeline of the term. Empty always raises the term; else it is raised if the last timeline was different."""
    secret: bytes


class FreePlace(NamedTuple):
    """Free rows of one place up to a height, as its retention allows."""

    place: LedgerPlace
    upto: int


class ExpireEntities(NamedTuple):
    """Remove entities of one place that have expired, in a block of its own; `leader` is as in `WriteCommand`."""

    place: LedgerPlace
    keys: tuple[bytes, ...]
    leader: bytes


class ForgetStreams(NamedTuple):
    """Free the rows of evicted clients, each given as a vault and a client."""

    org: int
    streams: tuple[tuple[int, bytes], ...]


LedgerCommand = (
    WriteCommand
    | WriteMany
    | CreateOrg
    | CreateVault
    | ChangeOrg
    | ChangeVault
    | OpenTerm
    | FreePlace
    | ForgetStreams
    | ExpireEntities
)


class CreatedPlace(NamedTuple):
    """The result of a creation; a retry gets the first result. `header` is the genesis header of a vault."""

    place: LedgerPlace
    header: BlockHeader | None
    is_replay: bool


class Org(NamedTuple):
    """An organization as answers show it."""

    slug: int
    name: bytes
    status: LedgerStatus
    created: LedgerTime
    entries: int
    eviction_interval: int
    ttl_seconds: int
    fence: bool
    vaults: int
    quota: OrgQuota = NO_QUOTA


class Vault(NamedTuple):
    """A vault as answers show it."""

    place: LedgerPlace
    status: LedgerStatus
    height: int
    state_root: bytes
    retain: int
    created: LedgerTime


class MaintenanceDone(NamedTuple):
    """The maintenance command was carried out."""

    number: int = 0


NUMBERS = {"organization_not_found": 3100, "vault_not_found": 3101, "invalid_argument": 3203, "internal": 3204}
"""The error numbers of some refusals, as clients know them."""


def invalid(message: str, field: str = "") -> Refused:
    """The refusal of an invalid value or an exceeded limit."""
    return Refused("ledger:invalid_argument", message, {"field": field} if field else {})
