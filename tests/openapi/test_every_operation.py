"""Bad input, sizes, content types, unknown places, other methods, foreign pages, the other port and quotas: what every
declared operation answers, made from the declarations.

Who may call an operation is compared in `tests/server/auth/test_access_matrix.py`, from the same declarations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from semel.server.api_document import api_document, operation_groups
from semel.server.openapi.operation import HttpAccess, HttpOperation
from tests.harness.server import RunningServer, free_port
from tests.openapi.calls import CALLS, HANDSHAKE, METHODS, NONE, OPERATIONS, Told, asked, filled, statuses_of, usual
from tests.server.quotas.site import Site, auth, served
from tests.streams.wire import Wire, request

DOCUMENT: dict[str, Any] = json.loads(api_document())
LIMIT = 4_096
"""Bytes of a body, on every surface whose limit is a setting."""
TOO_LARGE = 3 * 1024 * 1024
NOTHING = b"nothing at this"
GROUP_OF = {one.id: group.name for group in operation_groups() for one in group.operations}
CONTROL_ALONE = ("diagnose", "settings", "audit")
"""Operations that only the port of control has where there is one, besides the groups of `OF_CONTROL`."""
OF_CONTROL = ("tokens", "console")
ON_BOTH = ("server", "writes")
"""Groups whose other operations answer on both ports."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One in development mode, with one port."""
    env = {
        "SEMEL_STORE": "memory:",
        "SEMEL_MAX_BODY_BYTES": str(LIMIT),
        "SEMEL_EVENTS_MESSAGE_BYTES": str(LIMIT),
        "SEMEL_DELTAS_MAX_BODY_BYTES": str(LIMIT),
    }
    with RunningServer(tmp_path_factory.mktemp("every") / "data", env=env) as running:
        yield running


BODIES = {
    "nothing": (b"", "application/json"),
    "half a body": (b"[", "application/json"),
    "a list": (b"[]", "application/json"),
    "a number": (b"7", "application/json"),
    "no UTF-8": (b'{"\xff": 1}', "application/json"),
    "another type": (b"x", "text/plain"),
    "no type at all": (b"x", ""),
}


def faults_of(one: HttpOperation, method: str, told: Told) -> Iterator[str]:
    """What is wrong with an answer, whatever was asked."""
    if told.status not in statuses_of(one) - {405, 500}:
        yield f"status {told.status}, which is not declared: {told.body!r:.120}"
    if NOTHING in told.body:
        yield f"there is nothing at this path: {told.body!r:.120}"
    if "x-request-id" not in told.headers and told.status != 101:
        yield "no id of the request"
    if told.status != 101 and GROUP_OF[one.id] != "console":
        if told.headers.get("content-security-policy") != "sandbox":
            yield "a browser may run what it shows"
        if told.headers.get("x-content-type-options") != "nosniff":
            yield "a browser may guess what it is"
    if told.status >= 400 and method != "HEAD" and not told.headers["content-type"].startswith(one.form.media):
        yield f"a refusal as {told.headers['content-type']}"


def test_every_operation_answers_as_it_declares_whatever_it_is_sent(server: RunningServer) -> None:
    wrong = []
    for one, method in CALLS:
        port = server.port
        answers = {"as declared": asked(port, method, one.path, usual(one))}
        answers["an unknown query"] = asked(port, method, one.path, usual(one), query="?unknown=1&unknown=%ff")
        if one.body is not None:
            for name, (sent, kind) in BODIES.items():
                answers[name] = asked(port, method, one.path, {"content-type": kind}, sent)
        for name, told in answers.items():
            wrong += [f"{one.id} {method}, {name}: {fault}" for fault in faults_of(one, method, told)]
    assert not wrong, "\n".join(wrong)


def test_every_other_method_is_not_there(server: RunningServer) -> None:
    known = {(method, one.path) for one, method in CALLS}
    others = [(one, method) for one in OPERATIONS for method in METHODS if (method, one.path) not in known]
    answers = {(method, one.path): asked(server.port, method, one.path).status for one, method in others}
    assert {call: status for call, status in answers.items() if status not in (404, 405)} == {}


def test_every_path_of_names_has_a_neighbour_that_is_not_there(server: RunningServer) -> None:
    answers = {
        path: asked(server.port, one.method, path).status
        for one in OPERATIONS
        for path in (f"{one.path}/nothing/more/of/it", f"/x{one.path}")
        if not one.path.endswith(("{name}", "{id}"))  # these names have slashes of their own
    }
    assert {path: status for path, status in answers.items() if status not in (401, 404, 405)} == {}


def test_a_body_that_is_announced_as_too_large_is_not_asked_for_and_one_within_the_limit_is(
    server: RunningServer,
) -> None:
    wrong = []
    for one, method in CALLS:
        if one.body is None:
            continue
        for size in (TOO_LARGE, 2):
            lines = (b"Content-Type: application/json", b"Expect: 100-continue", b"Content-Length: %d" % size)
            with Wire(server) as wire:
                wire.send(request(method, filled(one.path), *lines))
                answer = wire.answer(method)
                if size == 2 and answer.status_code == 100:
                    wire.send(b"{}")
                    answer = wire.answer(method)
                elif answer.headers["Connection"] != "close" or not wire.closed():
                    wrong.append(f"{one.id} {size}: the connection goes on")
            # The table of errors of the ledger knows no 413.
            refused = answer.status_code == 413 or (GROUP_OF[one.id] == "ledger" and answer.status_code == 400)
            is_unread = answer.status_code in (401, 404)
            if (size == TOO_LARGE and not refused and not is_unread) or (size == 2 and answer.status_code == 413):
                wrong.append(f"{one.id} {method} with {size} bytes: {answer.status_code}")
    assert not wrong, "\n".join(wrong)


def test_every_operation_answers_on_its_own_port_alone(tmp_path: Path) -> None:
    control, wrong = free_port(), []
    env = {"SEMEL_STORE": "memory:", "SEMEL_CONTROL_PORT": str(control)}
    with RunningServer(tmp_path / "data", env=env) as server:
        for one, method in CALLS:
            group = GROUP_OF[one.id]
            is_control = group in OF_CONTROL or one.id in CONTROL_ALONE
            is_absent = {server.port: is_control, control: not is_control and group not in ON_BOTH}
            for port, expected in is_absent.items():
                told = asked(port, method, one.path, usual(one))
                # In the dialect of deltas 410 would tell a client that its cursor has expired.
                status, code = (404, b"not_found") if group == "deltas" else (410, b"wrong_plane")
                is_told = told.status == status and (method == "HEAD" or code in told.body.lower())
                if not (is_told if expected else told.status != 410):
                    wrong.append(f"{one.id} {method} on {'control' if port == control else 'data'}: {told}")
    assert not wrong, "\n".join(wrong)


# -- Pages of elsewhere -----------------------------------------------------------------------------------------------

STRANGE: Mapping[str, Mapping[str, str]] = {
    "host": {"host": "evil.example"},
    "origin": {"origin": "http://evil.example"},
    "null": {"origin": "null"},
    "rebound": {"host": "evil.example", "origin": "http://evil.example"},
}


def is_foreign(one: HttpOperation, method: str, told: Told) -> bool:
    """Whether an answer refuses a foreign page, in the form of its operation."""
    is_form = method == "HEAD" or (
        b"forbidden_origin" in told.body.lower()
        and told.headers["content-type"].startswith(one.form.media)
        and set(one.form.schema.schema["required"]) <= set(json.loads(told.body))
    )
    is_open = any(name.startswith("access-control-allow") for name in told.headers)
    is_varied = GROUP_OF[one.id] == "console" or told.headers["vary"] == "Origin"  # other pages never read the console
    return told.status == 403 and is_form and not is_open and is_varied


def test_every_operation_refuses_foreign_hosts_and_pages_in_its_own_form(server: RunningServer) -> None:
    wrong = []
    for one, method in CALLS:
        port = server.port
        for name, headers in STRANGE.items():
            told = asked(port, method, one.path, {**usual(one), **headers})
            if not is_foreign(one, method, told):
                wrong.append(f"{one.id} {method}, {name}: {told}")
        preflight = {"origin": "http://evil.example", "access-control-request-method": "PUT"}
        if asked(port, "OPTIONS", one.path, preflight).status != 403:
            wrong.append(f"{one.id}: a preflight of a foreign page")
    assert not wrong, "\n".join(wrong)


def test_every_operation_tells_pages_of_this_machine_that_they_may_read(server: RunningServer) -> None:
    origin = {"origin": "http://localhost:3000"}
    wanted = {"access-control-request-method": "DELETE", "access-control-request-headers": "authorization,x-anything"}
    wrong = []
    for one, method in ((one, method) for one, method in CALLS if GROUP_OF[one.id] != "console"):
        told = asked(server.port, method, one.path, {**usual(one), **origin})
        if told.status != 101 and (told.status, told.headers.get("access-control-allow-origin")) != (
            told.status if told.status != 403 else 0,
            origin["origin"],
        ):
            wrong.append(f"{one.id} {method}: {told}")
        plain = asked(server.port, method, one.path)
        if "access-control-allow-origin" in plain.headers or plain.headers["vary"] != "Origin":
            wrong.append(f"{one.id} {method} of no page: {plain}")
        before = asked(server.port, "OPTIONS", one.path, origin | wanted)
        named = before.headers.get("access-control-allow-methods", "").split(", ")
        if (before.status, before.headers.get("access-control-allow-headers")) != (204, "authorization,x-anything"):
            wrong.append(f"{one.id}: preflight {before}")
        if not {"DELETE", "PUT"} <= set(named):
            wrong.append(f"{one.id}: preflight allows {named}")
    assert not wrong, "\n".join(wrong)


# -- With credentials, lists and quotas -------------------------------------------------------------------------------

CHECKED = (HttpAccess.CREDENTIAL, HttpAccess.API_KEY)
"""Operations that check a credential of the server, whose principal may have quotas."""
REFUSALS = {"quota_exceeded", "resource_exhausted"}
"""The codes of a quota, in lower case: surfaces show theirs in either."""


def named(number: int) -> str:
    return f"principal-{number}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A principal for each call: more than a few refusals a second of the same one are answered late."""
    folder: Path = tmp_path_factory.mktemp("refusals")
    lists = {"SEMEL_ALLOWED_HOSTS": "semel.example", "SEMEL_ALLOWED_ORIGINS": "https://app.example"}
    with served(folder, {named(number): {"connections": 1} for number in range(len(CALLS))}, **lists) as made:
        yield made


def handshake_of(one: HttpOperation) -> Mapping[str, str]:
    """That of a path whose WebSocket checks the credential in the handshake; that of events does it in a message."""
    return HANDSHAKE if one.is_websocket and one.id != "readEvents" else NONE


def test_with_credentials_both_lists_hold_for_every_operation(site: Site) -> None:
    known = {**auth("other"), "host": "semel.example"}
    strange: tuple[Mapping[str, str], ...] = (
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:3000"},
    )
    wrong = []
    for one, method in CALLS:
        page = {**known, **handshake_of(one), "origin": "https://app.example"}
        told = asked(site.server.port, method, one.path, page)
        is_told = told.headers.get("access-control-allow-origin") == "https://app.example"
        if told.status not in (101, 401) and not is_told and GROUP_OF[one.id] != "console":
            wrong.append(f"{one.id} {method}: {told}")
        for headers in strange:
            told = asked(site.server.port, method, one.path, {**known, **handshake_of(one), **headers})
            if not is_foreign(one, method, told):
                wrong.append(f"{one.id} {method} {headers}: {told}")
    assert not wrong, "\n".join(wrong)


def documented(one: HttpOperation, method: str) -> set[str]:
    """The codes of 429 that the document has for an operation."""
    responses = DOCUMENT["paths"][one.path][method.lower()]["responses"]
    if "429" not in responses:
        return set()
    place = responses["429"]["$ref"].rpartition("/")[2]
    return {code.lower() for code in DOCUMENT["components"]["responses"][place]["x-error-codes"]}


def test_every_operation_that_a_quota_refuses_has_it_in_the_document(site: Site) -> None:
    wrong = []
    for number, (one, method) in enumerate(CALLS):
        headers = {**auth(named(number)), **handshake_of(one)}
        with site.client(named(number)) as first:
            assert first.get("/metrics").status_code == 200
            told = asked(site.server.port, method, one.path, headers)
        codes = documented(one, method) & REFUSALS
        is_refused = told.status == 429
        if is_refused != bool(codes):
            wrong.append(f"{one.id} {method}: {told.status}, and the document has {sorted(codes)}")
        if is_refused and told.body and not any(code.encode() in told.body.lower() for code in codes):
            wrong.append(f"{one.id} {method}: {told.body!r:.120} has none of {sorted(codes)}")
        if is_refused != (one.access in CHECKED):
            wrong.append(f"{one.id} {method}: {told.status}, and it takes {one.access.value}")
    assert not wrong, "\n".join(wrong)
