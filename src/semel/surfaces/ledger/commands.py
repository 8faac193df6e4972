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
"""Randomness that the id of a transaction takes."""


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
    """A transaction whose shape and size are right, encoded and hashed: the part that takes time when it is large."""

    place: LedgerPlace
    client: bytes
    sequence: int | None
    key: bytes
    """Sixteen bytes, or empty without one."""
    operations: tuple[Operation, ...]
    encoded: bytes
    """The operations in the encoding that is hashed."""
    request: bytes
    """Its hash: what two requests are told apart by."""


class WriteCommand(NamedTuple):
    """One transaction to be committed, once."""

    write: PreparedWrite
    actor: bytes
    leader: bytes
    chance: bytes
    with_proof: bool = False
    """Whether the answer is to carry header, proof and transaction: what its replays carry too."""


class CommittedTransaction(NamedTuple):
    """A transaction and its block, as stored; of a replay, too."""

    transaction: LedgerTransaction
    header: BlockHeader


class WriteCommitted(NamedTuple):
    """Committed now."""

    committed: CommittedTransaction


class WriteReplayed(NamedTuple):
    """Committed before, under the same identity and with the same operations."""

    committed: CommittedTransaction
    with_proof: bool = False
    """Whether the first answer carried a proof."""


class WriteDeclined(NamedTuple):
    """A domain error: nothing was changed. The code determines which members are set."""

    code: WriteErrorCode
    message: str
    row: str = ""
    """The row of the rule table that decided; empty for a condition."""
    key: bytes = b""
    current_version: int | None = None
    current_value: bytes | None = None
    tx_id: bytes | None = None
    height: int | None = None
    sequence: int | None = None
    last: int | None = None
    details: Mapping[str, str] = {}


class OrgSettings(NamedTuple):
    """Settings of an organization that can be changed; None leaves one unchanged."""

    eviction_interval: int | None = None
    ttl_seconds: int | None = None
    fence: bool | None = None
    status: LedgerStatus | None = None


class OrgQuota(NamedTuple):
    """Limits of an organization, set at its creation; 0 is no limit of its own."""

    max_storage_bytes: int = 0
    """Limit of bytes of keys and values in all its places."""
    max_vaults: int = 0
    max_write_ops_per_sec: int = 0
    """Transactions."""


NO_QUOTA = OrgQuota()


class CreateOrg(NamedTuple):
    """Create an organization; it gets the first free slug."""

    name: bytes
    slugs: tuple[int, ...]
    owner: bytes
    key: bytes
    """The caller and its idempotency key, empty without one: a repeat gets the first result."""
    quota: OrgQuota = NO_QUOTA


class CreateVault(NamedTuple):
    """Create a vault; `retain` is the number of bodies that are kept, 0 for all."""

    org: int
    slugs: tuple[int, ...]
    retain: int
    owner: bytes
    key: bytes


class ChangeOrg(NamedTuple):
    """Change settings or status."""

    org: int
    settings: OrgSettings


class ChangeVault(NamedTuple):
    """Change the status: active, read only, deleted."""

    place: LedgerPlace
    status: LedgerStatus


class OpenTerm(NamedTuple):
    """Raise the term if needed, at a start or after a change of the database timeline; the first makes the secret."""

    era: bytes
    """The timeline of the term: empty always raises it; else it is raised if another timeline was seen before."""
    secret: bytes


class FreePlace(NamedTuple):
    """Free what retention allows, in one place, up to a height."""

    place: LedgerPlace
    upto: int


class ForgetStreams(NamedTuple):
    """Free the rows of clients that eviction has forgotten: each a vault and a client."""

    org: int
    streams: tuple[tuple[int, bytes], ...]


LedgerCommand = WriteCommand | CreateOrg | CreateVault | ChangeOrg | ChangeVault | OpenTerm | FreePlace | ForgetStreams


class CreatedPlace(NamedTuple):
    """The result of a creation, the first one on a retry; `header` is the genesis header of a vault."""

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
    """Carried out."""

    number: int = 0


NUMBERS = {"organization_not_found": 3100, "vault_not_found": 3101, "invalid_argument": 3203, "internal": 3204}
"""The numbers by which clients know some refusals."""
CONDITION_FAILED, ALREADY_COMMITTED, SEQUENCE_VIOLATION = 3103, 3104, 3105
"""The domain errors of a write, where they are sent as a status."""


def invalid(message: str, field: str = "") -> Refused:
    """A shape or a limit that does not hold."""
    return Refused("ledger:invalid_argument", message, {"field": field} if field else {})
