"""The HTTP operations of the ledger, declared for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator

from semel.server.openapi.operation import (
    FLAG,
    OBJECT,
    PROBLEM_FORM,
    TEXT,
    AnySchema,
    HttpAccess,
    HttpBody,
    HttpOperation,
    HttpParameter,
    HttpSuccess,
    NamedSchema,
    Schema,
    errors,
    list_of,
    record,
    text,
    whole,
)

_ORGS = "/ledger/v1/orgs"
_ORG_PATH = f"{_ORGS}/{{org}}"
_VAULT_PATH = f"{_ORG_PATH}/vaults/{{vault}}"
_MOST = 2**64 - 1
_NUMBER: Schema = {"anyOf": [whole(0, _MOST), text(1, 20, pattern="^[0-9]+$")]}
"""A number of 64 bits: a number or a string in a request, a string in an answer."""
_BASE64 = text(0, pattern="^[A-Za-z0-9+/_=-]*$")
_SLUG = whole(0, _MOST)
_SHELL = errors(
    "ledger:resource_exhausted",
    "ledger:invalid_argument",
    "ledger:unauthenticated",
    "ledger:permission_denied",
    "ledger:forbidden_origin",
    "ledger:not_found",
    "ledger:organization_not_found",
    "ledger:vault_not_found",
    "ledger:method_not_allowed",
    "ledger:failed_precondition",
    "WRONG_PLANE",
    "ledger:internal",
    "ledger:data_loss",
    "ledger:unavailable",
)
_WRITE = errors("ledger:deadline_exceeded")
_HEIGHT = errors("ledger:height_unavailable")

_ORG = HttpParameter("org", "path", "The slug of the organization.", _SLUG)
_VAULT = HttpParameter("vault", "path", "The slug of the vault.", _SLUG)
_AT = HttpParameter("atHeight", "query", "Read at this height; now if 0 or absent.", whole(0, _MOST))
_CONSISTENCY = HttpParameter(
    "consistency",
    "query",
    "Every read sees every acknowledged write, whatever is asked for.",
    {
        "enum": [
            "READ_CONSISTENCY_UNSPECIFIED",
            "READ_CONSISTENCY_EVENTUAL",
            "READ_CONSISTENCY_LINEARIZABLE",
        ]
    },
)
_PROOF = HttpParameter("proof", "query", "Answer with a proof.", FLAG)
_TRUSTED = HttpParameter("trustedHeight", "query", "Add the headers from this height on.", whole(0, _MOST))
_PAGES = (
    HttpParameter("limit", "query", "How many; 100 if 0 or absent.", whole(0, 1_000)),
    HttpParameter("pageToken", "query", "The `nextPageToken` of the page before.", TEXT),
)
_KEY = HttpParameter("Idempotency-Key", "header", "16 bytes in base64, or a UUID.", TEXT)
_VERSION = HttpParameter("X-Ledger-Api-Version", "header", "The version of this interface.", {"enum": ["1"]})


def _query(name: str, about: str, schema: Schema = TEXT) -> HttpParameter:
    return HttpParameter(name, "query", about, schema)


_TRIPLE = record({"resource": TEXT, "relation": TEXT, "subject": TEXT})
LEDGER_OPERATION = NamedSchema(
    "LedgerOperation",
    {
        "type": "object",
        "description": "Exactly one member.",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {
            "setEntity": record(
                {"key": text(1, 1_024), "value": _BASE64},
                {
                    "expiresAt": _NUMBER,
                    "condition": record(
                        {}, {"notExists": FLAG, "mustExists": FLAG, "version": _NUMBER, "valueEquals": _BASE64}
                    ),
                },
            ),
            "deleteEntity": record({"key": text(1, 1_024)}),
            "expireEntity": record({"key": text(1, 1_024), "expiredAt": _NUMBER}),
            "createRelationship": _TRIPLE,
            "deleteRelationship": _TRIPLE,
        },
    },
)
_IDENTITY = {"sequence": _NUMBER, "idempotencyKey": TEXT}
LEDGER_WRITE = NamedSchema(
    "LedgerWrite",
    record(
        {"clientId": text(1, 256), "operations": list_of(LEDGER_OPERATION, 1, 1_000)},
        _IDENTITY | {"includeTxProof": FLAG},
    ),
)
_GROUP = record({"operations": list_of(LEDGER_OPERATION, 1)})
LEDGER_BATCH = NamedSchema(
    "LedgerBatch",
    record({"clientId": text(1, 256), "operations": list_of(_GROUP, 1, 1_000)}, _IDENTITY | {"includeTxProofs": FLAG}),
)
LEDGER_OUTCOME = NamedSchema("LedgerOutcome", record({}, {"success": OBJECT, "error": OBJECT}))
_QUOTA = record({}, dict.fromkeys(("maxStorageBytes", "maxVaults", "maxWriteOpsPerSec"), _NUMBER))
_ORG_CHANGE = record({}, {"evictionInterval": _NUMBER, "ttlSeconds": _NUMBER, "fence": FLAG, "status": TEXT})
_RETENTION = record({}, {"mode": TEXT, "retentionBlocks": _NUMBER})


def _made(
    name: str,
    method: str,
    path: str,
    about: str,
    *,
    parameters: tuple[HttpParameter, ...] = (),
    body: AnySchema | None = None,
    role: str = "read",
    schema: AnySchema = OBJECT,
) -> HttpOperation:
    is_read = method == "GET"
    return HttpOperation(
        name,
        method,
        path,
        about,
        (HttpSuccess(200, "Done.", schema),),
        _SHELL + (_HEIGHT if is_read else _WRITE),
        PROBLEM_FORM,
        (*parameters, _VERSION),
        None if body is None else HttpBody(body),
        HttpAccess.API_KEY,
        role,
        has_head=is_read,
    )


def _write(name: str, word: str, about: str, body: AnySchema, parameters: tuple[HttpParameter, ...]) -> HttpOperation:
    made = _made(name, "POST", word, about, body=body, role="write", schema=LEDGER_OUTCOME, parameters=parameters)
    refused = (
        HttpSuccess(409, "`IDEMPOTENCY_KEY_REUSED`, `SEQUENCE_GAP`; or a refusal.", LEDGER_OUTCOME),
        HttpSuccess(412, "A condition failed.", LEDGER_OUTCOME),
    )
    return made._replace(successes=made.successes + refused)


_STREAM = HttpSuccess(200, "Blocks, from `from` on.", TEXT, ("text/event-stream",))
_RELATIONSHIPS = tuple(_query(name, "Exact, and not empty.", text(1)) for name in ("resource", "relation", "subject"))
_PLACE = (
    _write("write", "writes", "Write a transaction.", LEDGER_WRITE, (_KEY,)),
    _write("writeBatch", "batches", "Write a transaction, with its operations in groups.", LEDGER_BATCH, (_KEY,)),
    _made(
        "writeMany",
        "POST",
        "writes:bulk",
        "Write many transactions, with a verdict for each.",
        body=record({"transactions": list_of(LEDGER_WRITE, 1, 1_000)}),
        role="write",
        schema=record({"results": list_of(OBJECT)}),
    ),
    _made(
        "clientState",
        "GET",
        "clients/{clientId}/state",
        "The last commit of a client.",
        parameters=(HttpParameter("clientId", "path", "The id of the client.", text(1, 256)),),
    ),
    _made(
        "listEntities",
        "GET",
        "entities",
        "List entities.",
        parameters=(
            _query("prefix", "The prefix of keys."),
            _query("includeExpired", "", FLAG),
            _AT,
            _CONSISTENCY,
            *_PAGES,
        ),
    ),
    _made(
        "readEntity",
        "GET",
        "entities/{key}",
        "Read an entity.",
        parameters=(HttpParameter("key", "path", "Its key.", text(1, 1_024)), _AT, _CONSISTENCY, _PROOF, _TRUSTED),
    )._replace(
        successes=(HttpSuccess(200, "Found.", OBJECT), HttpSuccess(404, "Absent; with `proof`, its proof.", OBJECT))
    ),
    _made(
        "readEntities",
        "POST",
        "entities:batchRead",
        "Read many entities at one instant.",
        body=record({"keys": list_of(text(1, 1_024), 1, 1_000)}),
    ),
    _made(
        "listRelationships",
        "GET",
        "relationships",
        "List relationships of a vault, or prove one.",
        parameters=(*_RELATIONSHIPS, _AT, _CONSISTENCY, _PROOF, _TRUSTED, *_PAGES),
    ),
    _made(
        "listResources",
        "GET",
        "resources",
        "List resources that have relationships, in a vault.",
        parameters=(_query("type", "What stands before the colon."), _AT, _CONSISTENCY, *_PAGES),
    ),
    _made("tip", "GET", "tip", "Height, block hash and state root."),
    _made(
        "listBlocks",
        "GET",
        "blocks",
        "A range of blocks.",
        parameters=(_query("from", "The first.", whole(0, _MOST)), _query("to", "The last.", whole(0, _MOST))),
    ),
    _made(
        "watchBlocks",
        "GET",
        "blocks:watch",
        "Follow blocks as server-sent events.",
        parameters=(
            _query("from", "The first, at least 1.", whole(1, _MOST)),
            HttpParameter("Last-Event-ID", "header", "The last event that the client has seen.", whole(0, _MOST)),
        ),
    )._replace(successes=(_STREAM,)),
    _made(
        "getBlock",
        "GET",
        "blocks/{height}",
        "Read a block.",
        parameters=(HttpParameter("height", "path", "Its height.", whole(0, _MOST)),),
    ),
    _made(
        "proveBlock",
        "GET",
        "blocks/{height}/proof",
        "Header, transaction and proofs of a block.",
        parameters=(
            HttpParameter("height", "path", "Its height.", whole(0, _MOST)),
            _query("txId", "The id of its transaction."),
            _TRUSTED,
        ),
    ),
    _made(
        "getTransaction",
        "GET",
        "transactions/{txId}",
        "Read a transaction with its block and proof.",
        parameters=(HttpParameter("txId", "path", "16 bytes: hexadecimal, a UUID or base64.", text(1)),),
    ),
)
"""Operations at a place; their paths are relative to it."""


def _at_places() -> Iterator[HttpOperation]:
    for one in _PLACE:
        upper = one.id[0].upper() + one.id[1:]
        yield one._replace(id=f"org{upper}", path=f"{_ORG_PATH}/{one.path}", parameters=(_ORG, *one.parameters))
        parameters = (_ORG, _VAULT, *one.parameters)
        yield one._replace(id=f"vault{upper}", path=f"{_VAULT_PATH}/{one.path}", parameters=parameters)


def _things() -> Iterator[HttpOperation]:
    org = record({"name": text(1, 256)}, {"quota": _QUOTA})
    yield _made("listOrgs", "GET", _ORGS, "List organizations.", parameters=_PAGES)
    yield _made("makeOrg", "POST", _ORGS, "Make an organization.", body=org, role="admin", parameters=(_KEY,))
    yield _made("getOrg", "GET", _ORG_PATH, "Show an organization.", parameters=(_ORG,))
    yield _made("changeOrg", "PATCH", _ORG_PATH, "Change it.", body=_ORG_CHANGE, role="admin", parameters=(_ORG,))
    yield _made("deleteOrg", "DELETE", _ORG_PATH, "End it.", role="admin", parameters=(_ORG,))
    vaults = f"{_ORG_PATH}/vaults"
    yield _made("listVaults", "GET", vaults, "List vaults.", parameters=(_ORG, *_PAGES))
    vault = record({}, {"retentionPolicy": _RETENTION})
    yield _made("makeVault", "POST", vaults, "Make a vault.", body=vault, role="admin", parameters=(_ORG, _KEY))
    named = (_ORG, _VAULT)
    yield _made("getVault", "GET", _VAULT_PATH, "Show a vault.", parameters=named)
    status = record({"status": TEXT})
    yield _made("changeVault", "PATCH", _VAULT_PATH, "Change it.", body=status, role="admin", parameters=named)
    yield _made("deleteVault", "DELETE", _VAULT_PATH, "End it.", role="admin", parameters=named)


OPERATIONS = (*_things(), *_at_places())
