"""Every operation, WebSocket message and gRPC method, for every role, reach and namespace, compared with one table of
rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import pytest

from semel.kernel.namespace import DEFAULT
from semel.server.api_document import operation_groups
from semel.server.openapi.operation import HttpOperation
from semel.surfaces.deltas.wire import frames
from semel.surfaces.events.wire.camel_case import CamelCaseDialect
from semel.surfaces.events.wire.snake_case import SnakeCaseDialect
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.harness.server import HOST
from tests.server.auth.access_rules import GRPC, HTTP, MESSAGES, OPEN, AccessRule, Reach, Rule, is_allowed
from tests.server.auth.matrix_calls import answer_of, said
from tests.server.auth.matrix_requests import NAMES
from tests.server.auth.matrix_site import AWAY, HOME, MatrixAnswer, MatrixCaller, MatrixSite, matrix_site

OF_PLACE = "HealthService/Check of a place"
REFUSED_ITEM = re.compile(rb'"reason":"forbidden"|"http":403')
"""How a batch of one item tells that the item is refused."""
LAST = ("deleteSubscription", "deleteVault", "deleteOrg")
"""Operations that remove what others are about."""
REQUEST_ID = re.compile(rb'"requestId":"[^"]*"')
OPERATIONS = {one.id: one for group in operation_groups() for one in group.operations}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MatrixSite]:
    with matrix_site(tmp_path_factory.mktemp("matrix")) as site:
        yield site


def fitting(callers: Iterable[MatrixCaller], rule: Rule) -> list[MatrixCaller]:
    """The callers without those of two roles, unless the rule is about two."""
    combined = isinstance(rule, AccessRule) and len(rule.roles) > 1
    return [one for one in callers if combined or ", " not in one.role]


def denied_first(site: MatrixSite, rule: Rule, namespace: str) -> Iterable[tuple[MatrixCaller, bool]]:
    """The callers, with what they may; those that may come last, because they may remove what the call is about."""
    callers = fitting(site.callers[namespace], rule)
    return sorted(((one, is_allowed(rule, one.role, one.reach, one.home)) for one in callers), key=lambda one: one[1])


def strangers(site: MatrixSite, rule: Rule, turn: int) -> Iterator[tuple[MatrixCaller, str]]:
    """The callers that are known in one namespace, each with another one; the next turn gives them the next one."""
    for number, caller in enumerate((*site.mighty, *(one for one in fitting(site.callers[HOME], rule) if one.role))):
        others = [name for name in site.known if name != caller.home]
        yield caller, others[(number + turn) % len(others)]


def is_denied(rule: Rule, answer: MatrixAnswer) -> bool:
    """Whether an answer refuses the caller, as a whole or for its one item."""
    is_hidden = isinstance(rule, AccessRule) and rule.is_hidden
    statuses = (401, 403, 404) if is_hidden else (401, 403)
    return answer.status in statuses or (answer.status == 200 and REFUSED_ITEM.search(answer.body) is not None)


def test_every_operation_message_and_method_has_a_rule() -> None:
    assert set(HTTP) == set(OPERATIONS)
    types = SnakeCaseDialect.types | CamelCaseDialect.types
    framed = {name.lower() for name in ("PUSH", "PULL") if hasattr(frames, name)}
    assert set(MESSAGES) == {f"events {one}" for one in types} | {f"deltas {one}" for one in framed}
    services = pb.DESCRIPTOR.services_by_name
    assert set(GRPC) == {OF_PLACE, *(f"{name}/{one.name}" for name, all_ in services.items() for one in all_.methods)}


def test_the_document_names_the_roles_of_the_rules() -> None:
    for name, rule in HTTP.items():
        if isinstance(rule, AccessRule) and rule.roles:
            told = set(OPERATIONS[name].role.partition(";")[0].split(", "))
            assert told == rule.roles, name


NAMESPACES = pytest.mark.parametrize("namespace", [DEFAULT, HOME])


def test_no_operation_knows_a_credential_of_another_namespace(site: MatrixSite) -> None:
    wrong = []
    unknown = MatrixCaller("unknown", "not-known")
    calls = [(one, method) for one in OPERATIONS.values() for method in one.methods]
    for turn, (one, method) in enumerate(calls):
        expected = site.ask(one, method, unknown, AWAY).status
        assert (expected in (401, 403)) == (HTTP[one.id] != OPEN), (one.id, method, expected)
        for caller, namespace in strangers(site, HTTP[one.id], turn):
            status = site.ask(one, method, caller, namespace).status
            if status != expected:
                wrong.append(f"{one.id} {method} {caller.name} in {namespace}: {status}, expected {expected}")
    assert not wrong, "\n".join(wrong)


MARK = re.compile(rb'(?:canary-|namespace="?)([a-z]+)')
"""How the contents of a namespace, and its metrics, name it."""


def test_no_answer_tells_of_another_namespace(site: MatrixSite) -> None:
    found = dict[str, set[tuple[str, str]]]()
    reads = [
        one for one in OPERATIONS.values() if one.method == "GET" and HTTP[one.id] != OPEN and not one.is_websocket
    ]
    for caller in site.mighty:
        told = [(one.id, site.ask(one, "GET", caller, caller.home).body) for one in reads]
        with grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as channel:
            calls = [name for name in GRPC if not name.startswith("WriteService") and "Delete" not in name]
            told += [(name, answer_of(channel, name, site, caller, caller.home)[1]) for name in calls]
        found[caller.name] = {(name, mark.decode()) for name, body in told for mark in MARK.findall(body)}
    wrong = [(one.name, told) for one in site.mighty for told in found[one.name] if told[1] != one.home]
    assert not wrong, wrong
    for name in ("stored-default", "stored-red"):
        lists = ("listStreams", "listJobs", "listOrgs", "listGateways", "AdminService/ListOrganizations")
        assert {(one, name.removeprefix("stored-")) for one in lists} <= found[name]
    assert ("metrics", DEFAULT) in found["stored-default"]


PATHS = (
    *("/ns/red/ns/blue", "/ns/red/../blue", "/ns/red/%2e%2e/blue", "/ns/red/..%2fblue", "//ns/blue", "/ns/BLUE"),
    *("/ns/blue%20", "/ns/blu%65", "/ns//blue", "/ns/red//ns/blue", "/ns/red;/ns/blue", "/./ns/blue", "/ns/red%2f"),
)


@pytest.mark.parametrize("base", PATHS)
def test_no_other_spelling_of_a_path_leads_into_a_namespace(site: MatrixSite, base: str) -> None:
    [caller] = [one for one in site.mighty if one.name == "stored-red"]
    for one in (OPERATIONS["listStreams"], OPERATIONS["listOrgs"], OPERATIONS["listJobs"]):
        answer = site.send("GET", base + one.path, caller)
        assert answer.status in (400, 401, 404), (one.id, answer)


@NAMESPACES
def test_every_operation_lets_in_whom_the_table_says(site: MatrixSite, namespace: str) -> None:
    wrong = []
    for one in sorted(OPERATIONS.values(), key=lambda one: (one.method == "DELETE", one.id in LAST)):
        for method in one.methods:
            wrong += list(differences(site, one, method, namespace))
    assert not wrong, "\n".join(wrong)


def differences(site: MatrixSite, one: HttpOperation, method: str, namespace: str) -> Iterator[str]:
    rule = HTTP[one.id]
    for caller, may in denied_first(site, rule, namespace):
        answer = site.ask(one, method, caller, namespace)
        # A job of the matrix has no result and no members, which is 404 for those who may ask, too.
        is_absent = may and answer.status == 404 and isinstance(rule, AccessRule) and rule.reach is Reach.OWNER
        if (is_denied(rule, answer) == may and not is_absent) or answer.status >= 500:
            expected = "yes" if may else "no"
            yield f"{one.id} {method} {caller.name}: {answer.status}, expected {expected} {answer.body!r:.90}"
        if not caller.role and not may and answer.status not in (401, 403):
            yield f"{one.id} {method} {caller.name}: {answer.status} without a known credential"


def test_what_a_caller_does_not_reach_is_answered_as_what_is_not_there(site: MatrixSite) -> None:
    """Byte for byte, but for the names that the caller sent: else answers tell which names others use."""
    wrong = []
    for one in (one for one in OPERATIONS.values() if "{" in one.path):
        rule = HTTP[one.id]
        if not isinstance(rule, AccessRule) or rule.reach in (Reach.WHOLE, Reach.PROCESS):
            continue
        names = site.known[AWAY] | NAMES.get(one.id, {})
        absent = {name: absent_name(value) for name, value in names.items()}
        sent = [*names.values(), *absent.values()]
        for caller in fitting(site.callers[DEFAULT], rule):
            if caller.reach != "foreign" or not (caller.role == "admin" or rule.roles <= set(caller.role.split(", "))):
                continue
            for method in one.methods:
                told, missing = (without(sent, site.ask(one, method, caller, AWAY, given)) for given in (names, absent))
                if told != missing:
                    wrong.append(f"{one.id} {method} {caller.name}: {told[:2]}; what is not there: {missing[:2]}")
    assert not wrong, "\n".join(wrong)
    [boss] = [one for one in site.callers[DEFAULT] if one.name == "admin-all"]
    for name in ("describeStream", "getSubscription", "getQueue", "getVault"):
        assert site.ask(OPERATIONS[name], OPERATIONS[name].method, boss, AWAY).status == 200, name


def without(names: Iterable[str], answer: MatrixAnswer) -> MatrixAnswer:
    """An answer without the names that it repeats, and without the id of the request."""
    body = REQUEST_ID.sub(b"", answer.body)
    for name in sorted(names, key=len, reverse=True):
        body = body.replace(name.encode(), b"") if len(name) > 3 else body
    return answer._replace(body=body)


def absent_name(name: str) -> str:
    """A name of the same length and form that nothing has."""
    return name.upper() if name.startswith("own-") else name[:-1] + ("7" if name[-1] == "0" else "0")


# -- WebSockets --------------------------------------------------------------------------------------------------------


def is_refused(heard: str) -> bool:
    return any(word in heard for word in ("auth_failed", '"forbidden"', "AUTH_ERROR", "FORBIDDEN"))


@NAMESPACES
def test_every_websocket_message_is_taken_from_whom_the_table_says(site: MatrixSite, namespace: str) -> None:
    wrong = []
    for name, rule in MESSAGES.items():
        for caller, may in denied_first(site, rule, namespace):
            heard = said(site, name, caller, namespace)
            if is_refused(heard) == may:
                wrong.append(f"{name} {caller.name}: expected {'yes' if may else 'no'}: {heard:.200}")
    assert not wrong, "\n".join(wrong)


def test_no_websocket_knows_a_credential_of_another_namespace(site: MatrixSite) -> None:
    wrong = []
    for turn, (name, rule) in enumerate(MESSAGES.items()):
        for caller, namespace in strangers(site, rule, turn):
            heard = said(site, name, caller, namespace)
            if "auth_failed" not in heard and heard != "AUTH_ERROR 401":
                wrong.append(f"{name} {caller.name} in {namespace}: {heard:.200}")
    assert not wrong, "\n".join(wrong)


# -- gRPC --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def channel(site: MatrixSite) -> Iterator[Any]:
    with grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as made:
        yield made


@NAMESPACES
def test_every_grpc_method_is_carried_out_for_whom_the_table_says(
    site: MatrixSite, channel: Any, namespace: str
) -> None:
    wrong = []
    for name in sorted(GRPC, key=lambda one: "Delete" in one):
        for caller, may in denied_first(site, GRPC[name], namespace):
            code, _ = answer_of(channel, name, site, caller, namespace)
            if (code in ("UNAUTHENTICATED", "PERMISSION_DENIED")) == may or code in ("INTERNAL", "UNIMPLEMENTED"):
                wrong.append(f"{name} {caller.name}: {code}, expected {'yes' if may else 'no'}")
    assert not wrong, "\n".join(wrong)


def test_no_grpc_method_knows_a_credential_of_another_namespace(site: MatrixSite, channel: Any) -> None:
    wrong = []
    for turn, (name, rule) in enumerate(GRPC.items()):
        for caller, namespace in strangers(site, rule, turn):
            code, _ = answer_of(channel, name, site, caller, namespace)
            if code != ("OK" if rule == OPEN else "UNAUTHENTICATED"):
                wrong.append(f"{name} {caller.name} in {namespace}: {code}")
        for caller in site.mighty:
            code, _ = answer_of(channel, name, site, caller, "green")
            if code != "NOT_FOUND":
                wrong.append(f"{name} {caller.name} in a namespace that is not served: {code}")
    assert not wrong, "\n".join(wrong)
