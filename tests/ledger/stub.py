"""Message classes of the ledger, made from the published tables of fields with protobuf's own tools, and nothing else.

A field is written `number name type`. `?` after a name is a field with presence, `*` a list, `|` a member of the
message's one-of. Nothing here was generated from the server's own description: `test_stub.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.message import Message as ProtoMessage

PACKAGE = "ledger.v1"

ENUMS = {
    "Direction": ("DIRECTION", "UNSPECIFIED LEFT RIGHT"),
    "WriteErrorCode": (
        "WRITE_ERROR_CODE",
        (
            "UNSPECIFIED KEY_EXISTS KEY_NOT_FOUND VERSION_MISMATCH VALUE_MISMATCH ALREADY_COMMITTED"
            " IDEMPOTENCY_KEY_REUSED SEQUENCE_GAP"
        ),
    ),
    "ReadConsistency": ("READ_CONSISTENCY", "UNSPECIFIED EVENTUAL LINEARIZABLE"),
    "OrganizationStatus": ("ORGANIZATION_STATUS", "UNSPECIFIED ACTIVE MIGRATING SUSPENDED DELETING DELETED"),
    "VaultStatus": ("VAULT_STATUS", "UNSPECIFIED ACTIVE READ_ONLY DELETED"),
    "BlockRetentionMode": ("BLOCK_RETENTION_MODE", "UNSPECIFIED FULL COMPACTED"),
    "HealthStatus": ("HEALTH_STATUS", "UNSPECIFIED HEALTHY DEGRADED UNAVAILABLE"),
}

_PLACE = "1 organization OrganizationSlug, 2 vault VaultSlug"
_RELATIONSHIP = "1 resource string, 2 relation string, 3 subject string"
_SUCCESS = (
    "1 tx_id TxId, 2 block_height uint64, 3 block_header BlockHeader, 4 tx_proof MerkleProof,"
    " 5 assigned_sequence uint64, 100 transaction Transaction"
)
_PAGE = "2 block_height uint64, 3 next_page_token string"

MESSAGES = {
    "Hash": "1 value bytes",
    "OrganizationSlug": "1 slug uint64",
    "VaultSlug": "1 slug uint64",
    "ShardId": "1 id uint32",
    "NodeId": "1 id string",
    "ClientId": "1 id string",
    "TxId": "1 id bytes",
    "BlockHeader": (
        "1 height uint64, 2 organization OrganizationSlug, 3 vault VaultSlug, 4 previous_hash Hash,"
        " 5 tx_merkle_root Hash, 6 state_root Hash, 7 timestamp Timestamp, 8 leader_id NodeId, 9 term uint64,"
        " 10 committed_index uint64"
    ),
    "Block": "1 header BlockHeader, 2 transactions* Transaction",
    "BlockAnnouncement": (
        "1 organization OrganizationSlug, 2 vault VaultSlug, 3 height uint64, 4 block_hash Hash, 5 state_root Hash,"
        " 6 timestamp Timestamp"
    ),
    "Transaction": (
        "1 id TxId, 2 client_id ClientId, 3 sequence uint64, 4 operations* Operation, 5 timestamp Timestamp,"
        " 6 actor string"
    ),
    "Operation": (
        "1 create_relationship| CreateRelationship, 2 delete_relationship| DeleteRelationship,"
        " 3 set_entity| SetEntity, 4 delete_entity| DeleteEntity, 5 expire_entity| ExpireEntity"
    ),
    "CreateRelationship": _RELATIONSHIP,
    "DeleteRelationship": _RELATIONSHIP,
    "Relationship": _RELATIONSHIP,
    "SetEntity": "1 key string, 2 value bytes, 3 expires_at? uint64, 4 condition SetCondition",
    "SetCondition": "1 not_exists| bool, 2 version| uint64, 3 value_equals| bytes, 4 must_exists| bool",
    "DeleteEntity": "1 key string",
    "ExpireEntity": "1 key string, 2 expired_at uint64",
    "Entity": "1 key string, 2 value bytes, 3 expires_at? uint64, 4 version uint64",
    "MerkleProof": "1 leaf_hash Hash, 2 siblings* MerkleSibling",
    "MerkleSibling": "1 hash Hash, 2 direction Direction",
    "ChainProof": "1 headers* BlockHeader",
    "StateProof": (
        "1 key bytes, 2 value bytes, 3 expires_at uint64, 4 version uint64, 5 bucket_id uint32, 6 bucket_root Hash,"
        " 7 other_bucket_roots* Hash, 8 block_height uint64, 9 state_root Hash, 100 bucket_entries* StateEntry"
    ),
    "StateEntry": "1 key bytes, 2 value bytes, 3 expires_at uint64, 4 version uint64",
    "WriteRequest": (
        f"{_PLACE}, 3 client_id ClientId, 4 idempotency_key bytes, 5 operations* Operation,"
        " 6 include_tx_proof bool, 100 sequence? uint64"
    ),
    "BatchWriteRequest": (
        f"{_PLACE}, 3 client_id ClientId, 4 idempotency_key bytes, 5 operations* BatchWriteOperation,"
        " 6 include_tx_proofs bool, 100 sequence? uint64"
    ),
    "BatchWriteOperation": "1 operations* Operation",
    "WriteResponse": "1 success| WriteSuccess, 2 error| WriteError",
    "BatchWriteResponse": "1 success| BatchWriteSuccess, 2 error| WriteError",
    "WriteSuccess": _SUCCESS,
    "BatchWriteSuccess": _SUCCESS,
    "WriteError": (
        "1 code WriteErrorCode, 2 key string, 3 current_version? uint64, 4 current_value? bytes, 5 message string,"
        " 6 committed_tx_id TxId, 7 committed_block_height? uint64, 8 assigned_sequence? uint64,"
        " 100 last_committed_sequence? uint64, 101 original WriteSuccess, 102 details map"
    ),
    "ReadRequest": f"{_PLACE}, 3 key string, 4 consistency ReadConsistency",
    "ReadResponse": "1 value? bytes, 2 block_height uint64, 100 version? uint64, 101 expires_at? uint64",
    "BatchReadRequest": f"{_PLACE}, 3 keys* string, 4 consistency ReadConsistency",
    "BatchReadResponse": "1 results* BatchReadResult, 2 block_height uint64",
    "BatchReadResult": "1 key string, 2 value? bytes, 3 found bool, 100 version? uint64, 101 expires_at? uint64",
    "VerifiedReadRequest": (
        f"{_PLACE}, 3 key string, 4 at_height? uint64, 5 include_chain_proof bool, 6 trusted_height? uint64"
    ),
    "VerifiedReadResponse": (
        "1 value? bytes, 2 block_height uint64, 3 block_header BlockHeader, 4 merkle_proof MerkleProof,"
        " 5 chain_proof ChainProof, 100 state_proof StateProof"
    ),
    "HistoricalReadRequest": (
        f"{_PLACE}, 3 key string, 4 at_height uint64, 5 include_proof bool, 6 include_chain_proof bool,"
        " 7 trusted_height? uint64"
    ),
    "HistoricalReadResponse": (
        "1 value? bytes, 2 block_height uint64, 3 block_header BlockHeader, 4 merkle_proof MerkleProof,"
        " 5 chain_proof ChainProof, 100 state_proof StateProof"
    ),
    "WatchBlocksRequest": f"{_PLACE}, 3 start_height uint64",
    "GetBlockRequest": f"{_PLACE}, 3 height uint64",
    "GetBlockResponse": "1 block Block",
    "GetBlockRangeRequest": f"{_PLACE}, 3 start_height uint64, 4 end_height uint64",
    "GetBlockRangeResponse": "1 blocks* Block, 2 current_tip uint64",
    "GetTipRequest": _PLACE,
    "GetTipResponse": "1 height uint64, 2 block_hash Hash, 3 state_root Hash",
    "GetClientStateRequest": f"{_PLACE}, 3 client_id ClientId",
    "GetClientStateResponse": (
        "1 last_committed_sequence uint64, 100 last_tx_id TxId, 101 last_block_height uint64, 102 last_seen uint64"
    ),
    "ListRelationshipsRequest": (
        f"{_PLACE}, 3 resource? string, 4 relation? string, 5 subject? string, 6 at_height? uint64, 7 limit uint32,"
        " 8 page_token string, 9 consistency ReadConsistency, 100 include_proof bool, 101 include_chain_proof bool,"
        " 102 trusted_height? uint64"
    ),
    "ListRelationshipsResponse": (
        f"1 relationships* Relationship, {_PAGE}, 100 block_header BlockHeader, 101 merkle_proof MerkleProof,"
        " 102 chain_proof ChainProof, 103 state_proof StateProof"
    ),
    "ListResourcesRequest": (
        f"{_PLACE}, 3 resource_type string, 4 at_height? uint64, 5 limit uint32, 6 page_token string,"
        " 7 consistency ReadConsistency"
    ),
    "ListResourcesResponse": f"1 resources* string, {_PAGE}",
    "ListEntitiesRequest": (
        "1 organization OrganizationSlug, 2 key_prefix string, 3 at_height? uint64, 4 include_expired bool,"
        " 5 limit uint32, 6 page_token string, 7 consistency ReadConsistency, 8 vault VaultSlug"
    ),
    "ListEntitiesResponse": f"1 entities* Entity, {_PAGE}",
    "OrganizationQuota": (
        "1 max_storage_bytes uint64, 2 max_vaults uint32, 3 max_write_ops_per_sec uint32, 4 max_read_ops_per_sec uint32"
    ),
    "CreateOrganizationRequest": "1 name string, 2 shard_id ShardId, 3 quota OrganizationQuota",
    "CreateOrganizationResponse": "1 slug OrganizationSlug, 2 shard_id ShardId",
    "GetOrganizationRequest": "1 slug OrganizationSlug",
    "GetOrganizationResponse": (
        "1 slug OrganizationSlug, 2 name string, 3 shard_id ShardId, 4 status OrganizationStatus,"
        " 100 eviction_interval uint64, 101 ttl_seconds uint64, 102 fence bool, 103 entries uint64,"
        " 104 quota OrganizationQuota"
    ),
    "ListOrganizationsRequest": "1 limit uint32, 2 page_token string",
    "ListOrganizationsResponse": "1 organizations* GetOrganizationResponse, 2 next_page_token string",
    "DeleteOrganizationRequest": "1 slug OrganizationSlug",
    "DeleteOrganizationResponse": "",
    "BlockRetentionPolicy": "1 mode BlockRetentionMode, 2 retention_blocks uint64",
    "CreateVaultRequest": (
        "1 organization OrganizationSlug, 2 replication_factor uint32, 3 initial_nodes* NodeId,"
        " 4 retention_policy BlockRetentionPolicy"
    ),
    "CreateVaultResponse": "1 vault VaultSlug, 2 genesis BlockHeader",
    "GetVaultRequest": _PLACE,
    "GetVaultResponse": (
        f"{_PLACE}, 3 height uint64, 4 state_root Hash, 5 nodes* NodeId, 6 leader NodeId, 7 status VaultStatus,"
        " 8 retention_policy BlockRetentionPolicy"
    ),
    "ListVaultsRequest": "1 organization OrganizationSlug, 2 limit uint32, 3 page_token string",
    "ListVaultsResponse": "1 vaults* GetVaultResponse, 2 next_page_token string",
    "DeleteVaultRequest": _PLACE,
    "DeleteVaultResponse": "",
    "HealthCheckRequest": _PLACE,
    "HealthCheckResponse": "1 status HealthStatus, 2 message string, 3 details map",
    "ErrorDetails": (
        "1 error_code string, 2 is_retryable bool, 3 retry_after_ms? int32, 4 context map, 5 suggested_action? string"
    ),
}

SERVICES = {
    "WriteService": ("Write", "BatchWrite"),
    "ReadService": (
        "Read",
        "BatchRead",
        "VerifiedRead",
        "HistoricalRead",
        "WatchBlocks",
        "GetBlock",
        "GetBlockRange",
        "GetTip",
        "GetClientState",
        "ListRelationships",
        "ListResources",
        "ListEntities",
    ),
    "AdminService": (
        "CreateOrganization",
        "GetOrganization",
        "ListOrganizations",
        "DeleteOrganization",
        "CreateVault",
        "GetVault",
        "ListVaults",
        "DeleteVault",
    ),
    "HealthService": ("Check",),
}

_KINDS = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    name: getattr(_KINDS, f"TYPE_{name.upper()}") for name in ("uint64", "uint32", "int32", "string", "bytes", "bool")
}


class Field(NamedTuple):
    """A row of the table, read."""

    number: int
    name: str
    type: str
    mark: str


def fields_of(message: str) -> Iterator[Field]:
    """The fields of a message, as its table has them."""
    for row in filter(None, MESSAGES[message].split(",")):
        number, name, kind = row.split()
        mark = name[-1] if name[-1] in "?*|" else ""
        yield Field(int(number), name.removesuffix(mark), kind, mark)


@cache
def message_class(name: str) -> type[Any]:
    """The class of a message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def make(name: str, **fields: Any) -> ProtoMessage:
    """A message with these fields."""
    made: ProtoMessage = message_class(name)(**fields)
    return made


def path_of(rpc: str) -> str:
    """Where a method is called."""
    service = next(service for service, methods in SERVICES.items() if rpc in methods)
    return f"/{PACKAGE}.{service}/{rpc}"


def request_name(rpc: str) -> str:
    return "HealthCheckRequest" if rpc == "Check" else f"{rpc}Request"


def answer_name(rpc: str) -> str:
    return {"Check": "HealthCheckResponse", "WatchBlocks": "BlockAnnouncement"}.get(rpc, f"{rpc}Response")


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(name="tables.proto", package=PACKAGE, syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    for name, (prefix, values) in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values.split()):
            enum.value.add(name=f"{prefix}_{value}", number=number)
    for name in MESSAGES:
        _describe(file.message_type.add(name=name))
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _describe(message: Any) -> None:
    fields = list(fields_of(message.name))
    if any(field.mark == "|" for field in fields):
        message.oneof_decl.add(name="choice")
    for field in fields:
        made = message.field.add(name=field.name, number=field.number)
        made.label = _KINDS.LABEL_REPEATED if field.mark == "*" or field.type == "map" else _KINDS.LABEL_OPTIONAL
        if field.type == "map":
            _describe_map(message, made)
        elif field.type in SCALARS:
            made.type = SCALARS[field.type]
        else:
            made.type = _KINDS.TYPE_ENUM if field.type in ENUMS else _KINDS.TYPE_MESSAGE
            made.type_name = type_name(field.type)
        if field.mark == "|":
            made.oneof_index = 0
    # Presence of a scalar is a one-of of its own; those come after the real ones.
    for field, made in zip(fields, message.field, strict=True):
        if field.mark == "?":
            made.proto3_optional = True
            made.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def type_name(kind: str) -> str:
    """The full name of a type of the table."""
    return ".google.protobuf.Timestamp" if kind == "Timestamp" else f".{PACKAGE}.{kind}"


def _describe_map(message: Any, field: Any) -> None:
    """A map of texts is a list of pairs that is marked as a map."""
    entry = message.nested_type.add(name=f"{field.name.title()}Entry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), start=1):
        entry.field.add(name=name, number=number, label=_KINDS.LABEL_OPTIONAL, type=SCALARS["string"])
    field.type = _KINDS.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{message.name}.{entry.name}"
