import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Direction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIRECTION_UNSPECIFIED: _ClassVar[Direction]
    DIRECTION_LEFT: _ClassVar[Direction]
    DIRECTION_RIGHT: _ClassVar[Direction]

class WriteErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WRITE_ERROR_CODE_UNSPECIFIED: _ClassVar[WriteErrorCode]
    WRITE_ERROR_CODE_KEY_EXISTS: _ClassVar[WriteErrorCode]
    WRITE_ERROR_CODE_KEY_NOT_FOUND: _ClassVar[WriteErrorCode]
    WRITE_ERROR_CODE_VERSION_MISMATCH: _ClassVar[WriteErrorCode]
    WRITE_ERROR_CODE_VALUE_MISMATCH: _ClassVar[WriteErrorCode]
    WRITE_ERROR_CODE_ALREADY_COMMITTED: _ClassVar[WriteErrorCode]
    WRITE_ERROR_CODE_IDEMPOTENCY_KEY_REUSED: _ClassVar[WriteErrorCode]
    WRITE_ERROR_CODE_SEQUENCE_GAP: _ClassVar[WriteErrorCode]

class ReadConsistency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READ_CONSISTENCY_UNSPECIFIED: _ClassVar[ReadConsistency]
    READ_CONSISTENCY_EVENTUAL: _ClassVar[ReadConsistency]
    READ_CONSISTENCY_LINEARIZABLE: _ClassVar[ReadConsistency]

class ReadErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READ_ERROR_CODE_UNSPECIFIED: _ClassVar[ReadErrorCode]
    READ_ERROR_CODE_HEIGHT_UNAVAILABLE: _ClassVar[ReadErrorCode]

class OrganizationStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORGANIZATION_STATUS_UNSPECIFIED: _ClassVar[OrganizationStatus]
    ORGANIZATION_STATUS_ACTIVE: _ClassVar[OrganizationStatus]
    ORGANIZATION_STATUS_MIGRATING: _ClassVar[OrganizationStatus]
    ORGANIZATION_STATUS_SUSPENDED: _ClassVar[OrganizationStatus]
    ORGANIZATION_STATUS_DELETING: _ClassVar[OrganizationStatus]
    ORGANIZATION_STATUS_DELETED: _ClassVar[OrganizationStatus]

class VaultStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VAULT_STATUS_UNSPECIFIED: _ClassVar[VaultStatus]
    VAULT_STATUS_ACTIVE: _ClassVar[VaultStatus]
    VAULT_STATUS_READ_ONLY: _ClassVar[VaultStatus]
    VAULT_STATUS_DELETED: _ClassVar[VaultStatus]

class BlockRetentionMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BLOCK_RETENTION_MODE_UNSPECIFIED: _ClassVar[BlockRetentionMode]
    BLOCK_RETENTION_MODE_FULL: _ClassVar[BlockRetentionMode]
    BLOCK_RETENTION_MODE_COMPACTED: _ClassVar[BlockRetentionMode]

class HealthStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HEALTH_STATUS_UNSPECIFIED: _ClassVar[HealthStatus]
    HEALTH_STATUS_HEALTHY: _ClassVar[HealthStatus]
    HEALTH_STATUS_DEGRADED: _ClassVar[HealthStatus]
    HEALTH_STATUS_UNAVAILABLE: _ClassVar[HealthStatus]
DIRECTION_UNSPECIFIED: Direction
DIRECTION_LEFT: Direction
DIRECTION_RIGHT: Direction
WRITE_ERROR_CODE_UNSPECIFIED: WriteErrorCode
WRITE_ERROR_CODE_KEY_EXISTS: WriteErrorCode
WRITE_ERROR_CODE_KEY_NOT_FOUND: WriteErrorCode
WRITE_ERROR_CODE_VERSION_MISMATCH: WriteErrorCode
WRITE_ERROR_CODE_VALUE_MISMATCH: WriteErrorCode
WRITE_ERROR_CODE_ALREADY_COMMITTED: WriteErrorCode
WRITE_ERROR_CODE_IDEMPOTENCY_KEY_REUSED: WriteErrorCode
WRITE_ERROR_CODE_SEQUENCE_GAP: WriteErrorCode
READ_CONSISTENCY_UNSPECIFIED: ReadConsistency
READ_CONSISTENCY_EVENTUAL: ReadConsistency
READ_CONSISTENCY_LINEARIZABLE: ReadConsistency
READ_ERROR_CODE_UNSPECIFIED: ReadErrorCode
READ_ERROR_CODE_HEIGHT_UNAVAILABLE: ReadErrorCode
ORGANIZATION_STATUS_UNSPECIFIED: OrganizationStatus
ORGANIZATION_STATUS_ACTIVE: OrganizationStatus
ORGANIZATION_STATUS_MIGRATING: OrganizationStatus
ORGANIZATION_STATUS_SUSPENDED: OrganizationStatus
ORGANIZATION_STATUS_DELETING: OrganizationStatus
ORGANIZATION_STATUS_DELETED: OrganizationStatus
VAULT_STATUS_UNSPECIFIED: VaultStatus
VAULT_STATUS_ACTIVE: VaultStatus
VAULT_STATUS_READ_ONLY: VaultStatus
VAULT_STATUS_DELETED: VaultStatus
BLOCK_RETENTION_MODE_UNSPECIFIED: BlockRetentionMode
BLOCK_RETENTION_MODE_FULL: BlockRetentionMode
BLOCK_RETENTION_MODE_COMPACTED: BlockRetentionMode
HEALTH_STATUS_UNSPECIFIED: HealthStatus
HEALTH_STATUS_HEALTHY: HealthStatus
HEALTH_STATUS_DEGRADED: HealthStatus
HEALTH_STATUS_UNAVAILABLE: HealthStatus

class Hash(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class OrganizationSlug(_message.Message):
    __slots__ = ("slug",)
    SLUG_FIELD_NUMBER: _ClassVar[int]
    slug: int
    def __init__(self, slug: _Optional[int] = ...) -> None: ...

class VaultSlug(_message.Message):
    __slots__ = ("slug",)
    SLUG_FIELD_NUMBER: _ClassVar[int]
    slug: int
    def __init__(self, slug: _Optional[int] = ...) -> None: ...

class ShardId(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class NodeId(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ClientId(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class TxId(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    def __init__(self, id: _Optional[bytes] = ...) -> None: ...

class BlockHeader(_message.Message):
    __slots__ = ("height", "organization", "vault", "previous_hash", "tx_merkle_root", "state_root", "timestamp", "leader_id", "term", "committed_index")
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_HASH_FIELD_NUMBER: _ClassVar[int]
    TX_MERKLE_ROOT_FIELD_NUMBER: _ClassVar[int]
    STATE_ROOT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_INDEX_FIELD_NUMBER: _ClassVar[int]
    height: int
    organization: OrganizationSlug
    vault: VaultSlug
    previous_hash: Hash
    tx_merkle_root: Hash
    state_root: Hash
    timestamp: _timestamp_pb2.Timestamp
    leader_id: NodeId
    term: int
    committed_index: int
    def __init__(self, height: _Optional[int] = ..., organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., previous_hash: _Optional[_Union[Hash, _Mapping]] = ..., tx_merkle_root: _Optional[_Union[Hash, _Mapping]] = ..., state_root: _Optional[_Union[Hash, _Mapping]] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., leader_id: _Optional[_Union[NodeId, _Mapping]] = ..., term: _Optional[int] = ..., committed_index: _Optional[int] = ...) -> None: ...

class Block(_message.Message):
    __slots__ = ("header", "transactions")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    header: BlockHeader
    transactions: _containers.RepeatedCompositeFieldContainer[Transaction]
    def __init__(self, header: _Optional[_Union[BlockHeader, _Mapping]] = ..., transactions: _Optional[_Iterable[_Union[Transaction, _Mapping]]] = ...) -> None: ...

class BlockAnnouncement(_message.Message):
    __slots__ = ("organization", "vault", "height", "block_hash", "state_root", "timestamp")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASH_FIELD_NUMBER: _ClassVar[int]
    STATE_ROOT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    height: int
    block_hash: Hash
    state_root: Hash
    timestamp: _timestamp_pb2.Timestamp
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., height: _Optional[int] = ..., block_hash: _Optional[_Union[Hash, _Mapping]] = ..., state_root: _Optional[_Union[Hash, _Mapping]] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("id", "client_id", "sequence", "operations", "timestamp", "actor")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    id: TxId
    client_id: ClientId
    sequence: int
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    timestamp: _timestamp_pb2.Timestamp
    actor: str
    def __init__(self, id: _Optional[_Union[TxId, _Mapping]] = ..., client_id: _Optional[_Union[ClientId, _Mapping]] = ..., sequence: _Optional[int] = ..., operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., actor: _Optional[str] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("create_relationship", "delete_relationship", "set_entity", "delete_entity", "expire_entity")
    CREATE_RELATIONSHIP_FIELD_NUMBER: _ClassVar[int]
    DELETE_RELATIONSHIP_FIELD_NUMBER: _ClassVar[int]
    SET_ENTITY_FIELD_NUMBER: _ClassVar[int]
    DELETE_ENTITY_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_ENTITY_FIELD_NUMBER: _ClassVar[int]
    create_relationship: CreateRelationship
    delete_relationship: DeleteRelationship
    set_entity: SetEntity
    delete_entity: DeleteEntity
    expire_entity: ExpireEntity
    def __init__(self, create_relationship: _Optional[_Union[CreateRelationship, _Mapping]] = ..., delete_relationship: _Optional[_Union[DeleteRelationship, _Mapping]] = ..., set_entity: _Optional[_Union[SetEntity, _Mapping]] = ..., delete_entity: _Optional[_Union[DeleteEntity, _Mapping]] = ..., expire_entity: _Optional[_Union[ExpireEntity, _Mapping]] = ...) -> None: ...

class CreateRelationship(_message.Message):
    __slots__ = ("resource", "relation", "subject")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    resource: str
    relation: str
    subject: str
    def __init__(self, resource: _Optional[str] = ..., relation: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class DeleteRelationship(_message.Message):
    __slots__ = ("resource", "relation", "subject")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    resource: str
    relation: str
    subject: str
    def __init__(self, resource: _Optional[str] = ..., relation: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class Relationship(_message.Message):
    __slots__ = ("resource", "relation", "subject")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    resource: str
    relation: str
    subject: str
    def __init__(self, resource: _Optional[str] = ..., relation: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class SetEntity(_message.Message):
    __slots__ = ("key", "value", "expires_at", "condition")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    expires_at: int
    condition: SetCondition
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., expires_at: _Optional[int] = ..., condition: _Optional[_Union[SetCondition, _Mapping]] = ...) -> None: ...

class SetCondition(_message.Message):
    __slots__ = ("not_exists", "version", "value_equals", "must_exists")
    NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VALUE_EQUALS_FIELD_NUMBER: _ClassVar[int]
    MUST_EXISTS_FIELD_NUMBER: _ClassVar[int]
    not_exists: bool
    version: int
    value_equals: bytes
    must_exists: bool
    def __init__(self, not_exists: _Optional[bool] = ..., version: _Optional[int] = ..., value_equals: _Optional[bytes] = ..., must_exists: _Optional[bool] = ...) -> None: ...

class DeleteEntity(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class ExpireEntity(_message.Message):
    __slots__ = ("key", "expired_at")
    KEY_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_AT_FIELD_NUMBER: _ClassVar[int]
    key: str
    expired_at: int
    def __init__(self, key: _Optional[str] = ..., expired_at: _Optional[int] = ...) -> None: ...

class Entity(_message.Message):
    __slots__ = ("key", "value", "expires_at", "version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    expires_at: int
    version: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., expires_at: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class MerkleSibling(_message.Message):
    __slots__ = ("hash", "direction")
    HASH_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    hash: Hash
    direction: Direction
    def __init__(self, hash: _Optional[_Union[Hash, _Mapping]] = ..., direction: _Optional[_Union[Direction, str]] = ...) -> None: ...

class MerkleProof(_message.Message):
    __slots__ = ("leaf_hash", "siblings")
    LEAF_HASH_FIELD_NUMBER: _ClassVar[int]
    SIBLINGS_FIELD_NUMBER: _ClassVar[int]
    leaf_hash: Hash
    siblings: _containers.RepeatedCompositeFieldContainer[MerkleSibling]
    def __init__(self, leaf_hash: _Optional[_Union[Hash, _Mapping]] = ..., siblings: _Optional[_Iterable[_Union[MerkleSibling, _Mapping]]] = ...) -> None: ...

class ChainProof(_message.Message):
    __slots__ = ("headers",)
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    headers: _containers.RepeatedCompositeFieldContainer[BlockHeader]
    def __init__(self, headers: _Optional[_Iterable[_Union[BlockHeader, _Mapping]]] = ...) -> None: ...

class StateProof(_message.Message):
    __slots__ = ("key", "value", "expires_at", "version", "bucket_id", "bucket_root", "other_bucket_roots", "block_height", "state_root", "bucket_entries")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ROOT_FIELD_NUMBER: _ClassVar[int]
    OTHER_BUCKET_ROOTS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    STATE_ROOT_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    expires_at: int
    version: int
    bucket_id: int
    bucket_root: Hash
    other_bucket_roots: _containers.RepeatedCompositeFieldContainer[Hash]
    block_height: int
    state_root: Hash
    bucket_entries: _containers.RepeatedCompositeFieldContainer[StateEntry]
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., expires_at: _Optional[int] = ..., version: _Optional[int] = ..., bucket_id: _Optional[int] = ..., bucket_root: _Optional[_Union[Hash, _Mapping]] = ..., other_bucket_roots: _Optional[_Iterable[_Union[Hash, _Mapping]]] = ..., block_height: _Optional[int] = ..., state_root: _Optional[_Union[Hash, _Mapping]] = ..., bucket_entries: _Optional[_Iterable[_Union[StateEntry, _Mapping]]] = ...) -> None: ...

class StateEntry(_message.Message):
    __slots__ = ("key", "value", "expires_at", "version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    expires_at: int
    version: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., expires_at: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ("organization", "vault", "client_id", "idempotency_key", "operations", "include_tx_proof", "sequence")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_TX_PROOF_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    client_id: ClientId
    idempotency_key: bytes
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    include_tx_proof: bool
    sequence: int
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., client_id: _Optional[_Union[ClientId, _Mapping]] = ..., idempotency_key: _Optional[bytes] = ..., operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ..., include_tx_proof: _Optional[bool] = ..., sequence: _Optional[int] = ...) -> None: ...

class BatchWriteOperation(_message.Message):
    __slots__ = ("operations",)
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    def __init__(self, operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ...) -> None: ...

class BatchWriteRequest(_message.Message):
    __slots__ = ("organization", "vault", "client_id", "idempotency_key", "operations", "include_tx_proofs", "sequence")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_TX_PROOFS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    client_id: ClientId
    idempotency_key: bytes
    operations: _containers.RepeatedCompositeFieldContainer[BatchWriteOperation]
    include_tx_proofs: bool
    sequence: int
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., client_id: _Optional[_Union[ClientId, _Mapping]] = ..., idempotency_key: _Optional[bytes] = ..., operations: _Optional[_Iterable[_Union[BatchWriteOperation, _Mapping]]] = ..., include_tx_proofs: _Optional[bool] = ..., sequence: _Optional[int] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("success", "error")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    success: WriteSuccess
    error: WriteError
    def __init__(self, success: _Optional[_Union[WriteSuccess, _Mapping]] = ..., error: _Optional[_Union[WriteError, _Mapping]] = ...) -> None: ...

class BatchWriteResponse(_message.Message):
    __slots__ = ("success", "error")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    success: BatchWriteSuccess
    error: WriteError
    def __init__(self, success: _Optional[_Union[BatchWriteSuccess, _Mapping]] = ..., error: _Optional[_Union[WriteError, _Mapping]] = ...) -> None: ...

class WriteSuccess(_message.Message):
    __slots__ = ("tx_id", "block_height", "block_header", "tx_proof", "assigned_sequence", "transaction")
    TX_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEADER_FIELD_NUMBER: _ClassVar[int]
    TX_PROOF_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    tx_id: TxId
    block_height: int
    block_header: BlockHeader
    tx_proof: MerkleProof
    assigned_sequence: int
    transaction: Transaction
    def __init__(self, tx_id: _Optional[_Union[TxId, _Mapping]] = ..., block_height: _Optional[int] = ..., block_header: _Optional[_Union[BlockHeader, _Mapping]] = ..., tx_proof: _Optional[_Union[MerkleProof, _Mapping]] = ..., assigned_sequence: _Optional[int] = ..., transaction: _Optional[_Union[Transaction, _Mapping]] = ...) -> None: ...

class BatchWriteSuccess(_message.Message):
    __slots__ = ("tx_id", "block_height", "block_header", "tx_proof", "assigned_sequence", "transaction")
    TX_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEADER_FIELD_NUMBER: _ClassVar[int]
    TX_PROOF_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    tx_id: TxId
    block_height: int
    block_header: BlockHeader
    tx_proof: MerkleProof
    assigned_sequence: int
    transaction: Transaction
    def __init__(self, tx_id: _Optional[_Union[TxId, _Mapping]] = ..., block_height: _Optional[int] = ..., block_header: _Optional[_Union[BlockHeader, _Mapping]] = ..., tx_proof: _Optional[_Union[MerkleProof, _Mapping]] = ..., assigned_sequence: _Optional[int] = ..., transaction: _Optional[_Union[Transaction, _Mapping]] = ...) -> None: ...

class WriteError(_message.Message):
    __slots__ = ("code", "key", "current_version", "current_value", "message", "committed_tx_id", "committed_block_height", "assigned_sequence", "last_committed_sequence", "original", "details")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CURRENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CURRENT_VALUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_TX_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMITTED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: WriteErrorCode
    key: str
    current_version: int
    current_value: bytes
    message: str
    committed_tx_id: TxId
    committed_block_height: int
    assigned_sequence: int
    last_committed_sequence: int
    original: WriteSuccess
    details: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[_Union[WriteErrorCode, str]] = ..., key: _Optional[str] = ..., current_version: _Optional[int] = ..., current_value: _Optional[bytes] = ..., message: _Optional[str] = ..., committed_tx_id: _Optional[_Union[TxId, _Mapping]] = ..., committed_block_height: _Optional[int] = ..., assigned_sequence: _Optional[int] = ..., last_committed_sequence: _Optional[int] = ..., original: _Optional[_Union[WriteSuccess, _Mapping]] = ..., details: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("organization", "vault", "key", "consistency")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    key: str
    consistency: ReadConsistency
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., key: _Optional[str] = ..., consistency: _Optional[_Union[ReadConsistency, str]] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("value", "block_height", "version", "expires_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    block_height: int
    version: int
    expires_at: int
    def __init__(self, value: _Optional[bytes] = ..., block_height: _Optional[int] = ..., version: _Optional[int] = ..., expires_at: _Optional[int] = ...) -> None: ...

class BatchReadRequest(_message.Message):
    __slots__ = ("organization", "vault", "keys", "consistency")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    keys: _containers.RepeatedScalarFieldContainer[str]
    consistency: ReadConsistency
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., keys: _Optional[_Iterable[str]] = ..., consistency: _Optional[_Union[ReadConsistency, str]] = ...) -> None: ...

class BatchReadResult(_message.Message):
    __slots__ = ("key", "value", "found", "version", "expires_at")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    found: bool
    version: int
    expires_at: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., found: _Optional[bool] = ..., version: _Optional[int] = ..., expires_at: _Optional[int] = ...) -> None: ...

class BatchReadResponse(_message.Message):
    __slots__ = ("results", "block_height")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[BatchReadResult]
    block_height: int
    def __init__(self, results: _Optional[_Iterable[_Union[BatchReadResult, _Mapping]]] = ..., block_height: _Optional[int] = ...) -> None: ...

class VerifiedReadRequest(_message.Message):
    __slots__ = ("organization", "vault", "key", "at_height", "include_chain_proof", "trusted_height")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    AT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_CHAIN_PROOF_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    key: str
    at_height: int
    include_chain_proof: bool
    trusted_height: int
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., key: _Optional[str] = ..., at_height: _Optional[int] = ..., include_chain_proof: _Optional[bool] = ..., trusted_height: _Optional[int] = ...) -> None: ...

class VerifiedReadResponse(_message.Message):
    __slots__ = ("value", "block_height", "block_header", "merkle_proof", "chain_proof", "state_proof")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEADER_FIELD_NUMBER: _ClassVar[int]
    MERKLE_PROOF_FIELD_NUMBER: _ClassVar[int]
    CHAIN_PROOF_FIELD_NUMBER: _ClassVar[int]
    STATE_PROOF_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    block_height: int
    block_header: BlockHeader
    merkle_proof: MerkleProof
    chain_proof: ChainProof
    state_proof: StateProof
    def __init__(self, value: _Optional[bytes] = ..., block_height: _Optional[int] = ..., block_header: _Optional[_Union[BlockHeader, _Mapping]] = ..., merkle_proof: _Optional[_Union[MerkleProof, _Mapping]] = ..., chain_proof: _Optional[_Union[ChainProof, _Mapping]] = ..., state_proof: _Optional[_Union[StateProof, _Mapping]] = ...) -> None: ...

class HistoricalReadRequest(_message.Message):
    __slots__ = ("organization", "vault", "key", "at_height", "include_proof", "include_chain_proof", "trusted_height")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    AT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_PROOF_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_CHAIN_PROOF_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    key: str
    at_height: int
    include_proof: bool
    include_chain_proof: bool
    trusted_height: int
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., key: _Optional[str] = ..., at_height: _Optional[int] = ..., include_proof: _Optional[bool] = ..., include_chain_proof: _Optional[bool] = ..., trusted_height: _Optional[int] = ...) -> None: ...

class HistoricalReadResponse(_message.Message):
    __slots__ = ("value", "block_height", "block_header", "merkle_proof", "chain_proof", "state_proof")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEADER_FIELD_NUMBER: _ClassVar[int]
    MERKLE_PROOF_FIELD_NUMBER: _ClassVar[int]
    CHAIN_PROOF_FIELD_NUMBER: _ClassVar[int]
    STATE_PROOF_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    block_height: int
    block_header: BlockHeader
    merkle_proof: MerkleProof
    chain_proof: ChainProof
    state_proof: StateProof
    def __init__(self, value: _Optional[bytes] = ..., block_height: _Optional[int] = ..., block_header: _Optional[_Union[BlockHeader, _Mapping]] = ..., merkle_proof: _Optional[_Union[MerkleProof, _Mapping]] = ..., chain_proof: _Optional[_Union[ChainProof, _Mapping]] = ..., state_proof: _Optional[_Union[StateProof, _Mapping]] = ...) -> None: ...

class WatchBlocksRequest(_message.Message):
    __slots__ = ("organization", "vault", "start_height")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    START_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    start_height: int
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., start_height: _Optional[int] = ...) -> None: ...

class GetBlockRequest(_message.Message):
    __slots__ = ("organization", "vault", "height")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    height: int
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., height: _Optional[int] = ...) -> None: ...

class GetBlockResponse(_message.Message):
    __slots__ = ("block",)
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    block: Block
    def __init__(self, block: _Optional[_Union[Block, _Mapping]] = ...) -> None: ...

class GetBlockRangeRequest(_message.Message):
    __slots__ = ("organization", "vault", "start_height", "end_height")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    START_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    END_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    start_height: int
    end_height: int
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., start_height: _Optional[int] = ..., end_height: _Optional[int] = ...) -> None: ...

class GetBlockRangeResponse(_message.Message):
    __slots__ = ("blocks", "current_tip")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_TIP_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedCompositeFieldContainer[Block]
    current_tip: int
    def __init__(self, blocks: _Optional[_Iterable[_Union[Block, _Mapping]]] = ..., current_tip: _Optional[int] = ...) -> None: ...

class GetTipRequest(_message.Message):
    __slots__ = ("organization", "vault")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ...) -> None: ...

class GetTipResponse(_message.Message):
    __slots__ = ("height", "block_hash", "state_root")
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASH_FIELD_NUMBER: _ClassVar[int]
    STATE_ROOT_FIELD_NUMBER: _ClassVar[int]
    height: int
    block_hash: Hash
    state_root: Hash
    def __init__(self, height: _Optional[int] = ..., block_hash: _Optional[_Union[Hash, _Mapping]] = ..., state_root: _Optional[_Union[Hash, _Mapping]] = ...) -> None: ...

class GetClientStateRequest(_message.Message):
    __slots__ = ("organization", "vault", "client_id")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    client_id: ClientId
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., client_id: _Optional[_Union[ClientId, _Mapping]] = ...) -> None: ...

class GetClientStateResponse(_message.Message):
    __slots__ = ("last_committed_sequence", "last_tx_id", "last_block_height", "last_seen")
    LAST_COMMITTED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_TX_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_FIELD_NUMBER: _ClassVar[int]
    last_committed_sequence: int
    last_tx_id: TxId
    last_block_height: int
    last_seen: int
    def __init__(self, last_committed_sequence: _Optional[int] = ..., last_tx_id: _Optional[_Union[TxId, _Mapping]] = ..., last_block_height: _Optional[int] = ..., last_seen: _Optional[int] = ...) -> None: ...

class ListRelationshipsRequest(_message.Message):
    __slots__ = ("organization", "vault", "resource", "relation", "subject", "at_height", "limit", "page_token", "consistency", "include_proof", "include_chain_proof", "trusted_height")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    AT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_PROOF_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_CHAIN_PROOF_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    resource: str
    relation: str
    subject: str
    at_height: int
    limit: int
    page_token: str
    consistency: ReadConsistency
    include_proof: bool
    include_chain_proof: bool
    trusted_height: int
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., resource: _Optional[str] = ..., relation: _Optional[str] = ..., subject: _Optional[str] = ..., at_height: _Optional[int] = ..., limit: _Optional[int] = ..., page_token: _Optional[str] = ..., consistency: _Optional[_Union[ReadConsistency, str]] = ..., include_proof: _Optional[bool] = ..., include_chain_proof: _Optional[bool] = ..., trusted_height: _Optional[int] = ...) -> None: ...

class ListRelationshipsResponse(_message.Message):
    __slots__ = ("relationships", "block_height", "next_page_token", "block_header", "merkle_proof", "chain_proof", "state_proof")
    RELATIONSHIPS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEADER_FIELD_NUMBER: _ClassVar[int]
    MERKLE_PROOF_FIELD_NUMBER: _ClassVar[int]
    CHAIN_PROOF_FIELD_NUMBER: _ClassVar[int]
    STATE_PROOF_FIELD_NUMBER: _ClassVar[int]
    relationships: _containers.RepeatedCompositeFieldContainer[Relationship]
    block_height: int
    next_page_token: str
    block_header: BlockHeader
    merkle_proof: MerkleProof
    chain_proof: ChainProof
    state_proof: StateProof
    def __init__(self, relationships: _Optional[_Iterable[_Union[Relationship, _Mapping]]] = ..., block_height: _Optional[int] = ..., next_page_token: _Optional[str] = ..., block_header: _Optional[_Union[BlockHeader, _Mapping]] = ..., merkle_proof: _Optional[_Union[MerkleProof, _Mapping]] = ..., chain_proof: _Optional[_Union[ChainProof, _Mapping]] = ..., state_proof: _Optional[_Union[StateProof, _Mapping]] = ...) -> None: ...

class ListResourcesRequest(_message.Message):
    __slots__ = ("organization", "vault", "resource_type", "at_height", "limit", "page_token", "consistency")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    AT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    resource_type: str
    at_height: int
    limit: int
    page_token: str
    consistency: ReadConsistency
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., resource_type: _Optional[str] = ..., at_height: _Optional[int] = ..., limit: _Optional[int] = ..., page_token: _Optional[str] = ..., consistency: _Optional[_Union[ReadConsistency, str]] = ...) -> None: ...

class ListResourcesResponse(_message.Message):
    __slots__ = ("resources", "block_height", "next_page_token")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedScalarFieldContainer[str]
    block_height: int
    next_page_token: str
    def __init__(self, resources: _Optional[_Iterable[str]] = ..., block_height: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListEntitiesRequest(_message.Message):
    __slots__ = ("organization", "key_prefix", "at_height", "include_expired", "limit", "page_token", "consistency", "vault")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    AT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    key_prefix: str
    at_height: int
    include_expired: bool
    limit: int
    page_token: str
    consistency: ReadConsistency
    vault: VaultSlug
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., key_prefix: _Optional[str] = ..., at_height: _Optional[int] = ..., include_expired: _Optional[bool] = ..., limit: _Optional[int] = ..., page_token: _Optional[str] = ..., consistency: _Optional[_Union[ReadConsistency, str]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ...) -> None: ...

class ListEntitiesResponse(_message.Message):
    __slots__ = ("entities", "block_height", "next_page_token")
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entities: _containers.RepeatedCompositeFieldContainer[Entity]
    block_height: int
    next_page_token: str
    def __init__(self, entities: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ..., block_height: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class BlockRetentionPolicy(_message.Message):
    __slots__ = ("mode", "retention_blocks")
    MODE_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    mode: BlockRetentionMode
    retention_blocks: int
    def __init__(self, mode: _Optional[_Union[BlockRetentionMode, str]] = ..., retention_blocks: _Optional[int] = ...) -> None: ...

class OrganizationQuota(_message.Message):
    __slots__ = ("max_storage_bytes", "max_vaults", "max_write_ops_per_sec", "max_read_ops_per_sec")
    MAX_STORAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_VAULTS_FIELD_NUMBER: _ClassVar[int]
    MAX_WRITE_OPS_PER_SEC_FIELD_NUMBER: _ClassVar[int]
    MAX_READ_OPS_PER_SEC_FIELD_NUMBER: _ClassVar[int]
    max_storage_bytes: int
    max_vaults: int
    max_write_ops_per_sec: int
    max_read_ops_per_sec: int
    def __init__(self, max_storage_bytes: _Optional[int] = ..., max_vaults: _Optional[int] = ..., max_write_ops_per_sec: _Optional[int] = ..., max_read_ops_per_sec: _Optional[int] = ...) -> None: ...

class CreateOrganizationRequest(_message.Message):
    __slots__ = ("name", "shard_id", "quota")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    name: str
    shard_id: ShardId
    quota: OrganizationQuota
    def __init__(self, name: _Optional[str] = ..., shard_id: _Optional[_Union[ShardId, _Mapping]] = ..., quota: _Optional[_Union[OrganizationQuota, _Mapping]] = ...) -> None: ...

class CreateOrganizationResponse(_message.Message):
    __slots__ = ("slug", "shard_id")
    SLUG_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    slug: OrganizationSlug
    shard_id: ShardId
    def __init__(self, slug: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., shard_id: _Optional[_Union[ShardId, _Mapping]] = ...) -> None: ...

class GetOrganizationRequest(_message.Message):
    __slots__ = ("slug",)
    SLUG_FIELD_NUMBER: _ClassVar[int]
    slug: OrganizationSlug
    def __init__(self, slug: _Optional[_Union[OrganizationSlug, _Mapping]] = ...) -> None: ...

class GetOrganizationResponse(_message.Message):
    __slots__ = ("slug", "name", "shard_id", "status", "eviction_interval", "ttl_seconds", "fence", "entries", "quota")
    SLUG_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EVICTION_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    slug: OrganizationSlug
    name: str
    shard_id: ShardId
    status: OrganizationStatus
    eviction_interval: int
    ttl_seconds: int
    fence: bool
    entries: int
    quota: OrganizationQuota
    def __init__(self, slug: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., name: _Optional[str] = ..., shard_id: _Optional[_Union[ShardId, _Mapping]] = ..., status: _Optional[_Union[OrganizationStatus, str]] = ..., eviction_interval: _Optional[int] = ..., ttl_seconds: _Optional[int] = ..., fence: _Optional[bool] = ..., entries: _Optional[int] = ..., quota: _Optional[_Union[OrganizationQuota, _Mapping]] = ...) -> None: ...

class ListOrganizationsRequest(_message.Message):
    __slots__ = ("limit", "page_token")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    limit: int
    page_token: str
    def __init__(self, limit: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListOrganizationsResponse(_message.Message):
    __slots__ = ("organizations", "next_page_token")
    ORGANIZATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    organizations: _containers.RepeatedCompositeFieldContainer[GetOrganizationResponse]
    next_page_token: str
    def __init__(self, organizations: _Optional[_Iterable[_Union[GetOrganizationResponse, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteOrganizationRequest(_message.Message):
    __slots__ = ("slug",)
    SLUG_FIELD_NUMBER: _ClassVar[int]
    slug: OrganizationSlug
    def __init__(self, slug: _Optional[_Union[OrganizationSlug, _Mapping]] = ...) -> None: ...

class DeleteOrganizationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateVaultRequest(_message.Message):
    __slots__ = ("organization", "replication_factor", "initial_nodes", "retention_policy")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    INITIAL_NODES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_POLICY_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    replication_factor: int
    initial_nodes: _containers.RepeatedCompositeFieldContainer[NodeId]
    retention_policy: BlockRetentionPolicy
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., replication_factor: _Optional[int] = ..., initial_nodes: _Optional[_Iterable[_Union[NodeId, _Mapping]]] = ..., retention_policy: _Optional[_Union[BlockRetentionPolicy, _Mapping]] = ...) -> None: ...

class CreateVaultResponse(_message.Message):
    __slots__ = ("vault", "genesis")
    VAULT_FIELD_NUMBER: _ClassVar[int]
    GENESIS_FIELD_NUMBER: _ClassVar[int]
    vault: VaultSlug
    genesis: BlockHeader
    def __init__(self, vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., genesis: _Optional[_Union[BlockHeader, _Mapping]] = ...) -> None: ...

class GetVaultRequest(_message.Message):
    __slots__ = ("organization", "vault")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ...) -> None: ...

class GetVaultResponse(_message.Message):
    __slots__ = ("organization", "vault", "height", "state_root", "nodes", "leader", "status", "retention_policy")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    STATE_ROOT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_POLICY_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    height: int
    state_root: Hash
    nodes: _containers.RepeatedCompositeFieldContainer[NodeId]
    leader: NodeId
    status: VaultStatus
    retention_policy: BlockRetentionPolicy
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ..., height: _Optional[int] = ..., state_root: _Optional[_Union[Hash, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[NodeId, _Mapping]]] = ..., leader: _Optional[_Union[NodeId, _Mapping]] = ..., status: _Optional[_Union[VaultStatus, str]] = ..., retention_policy: _Optional[_Union[BlockRetentionPolicy, _Mapping]] = ...) -> None: ...

class ListVaultsRequest(_message.Message):
    __slots__ = ("organization", "limit", "page_token")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    limit: int
    page_token: str
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., limit: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListVaultsResponse(_message.Message):
    __slots__ = ("vaults", "next_page_token")
    VAULTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    vaults: _containers.RepeatedCompositeFieldContainer[GetVaultResponse]
    next_page_token: str
    def __init__(self, vaults: _Optional[_Iterable[_Union[GetVaultResponse, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteVaultRequest(_message.Message):
    __slots__ = ("organization", "vault")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ...) -> None: ...

class DeleteVaultResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthCheckRequest(_message.Message):
    __slots__ = ("organization", "vault")
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    VAULT_FIELD_NUMBER: _ClassVar[int]
    organization: OrganizationSlug
    vault: VaultSlug
    def __init__(self, organization: _Optional[_Union[OrganizationSlug, _Mapping]] = ..., vault: _Optional[_Union[VaultSlug, _Mapping]] = ...) -> None: ...

class HealthCheckResponse(_message.Message):
    __slots__ = ("status", "message", "details")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    status: HealthStatus
    message: str
    details: _containers.ScalarMap[str, str]
    def __init__(self, status: _Optional[_Union[HealthStatus, str]] = ..., message: _Optional[str] = ..., details: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ErrorDetails(_message.Message):
    __slots__ = ("error_code", "is_retryable", "retry_after_ms", "context", "suggested_action")
    class ContextEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    IS_RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_ACTION_FIELD_NUMBER: _ClassVar[int]
    error_code: str
    is_retryable: bool
    retry_after_ms: int
    context: _containers.ScalarMap[str, str]
    suggested_action: str
    def __init__(self, error_code: _Optional[str] = ..., is_retryable: _Optional[bool] = ..., retry_after_ms: _Optional[int] = ..., context: _Optional[_Mapping[str, str]] = ..., suggested_action: _Optional[str] = ...) -> None: ...
