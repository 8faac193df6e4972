"""Bugs in the separation of namespaces."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

_OPERATIONS = "tests/namespaces/test_operations.py"

NAMESPACES = (
    bug(
        "namespaces-limited-credential-known-everywhere",
        "a credential that is limited to namespaces is unknown in every other one",
        "server/auth/principals.py",
        "        if known.namespaces is not None and self.namespace not in known.namespaces:\n",
        "        if known.namespaces is not None and not known.namespaces:\n",
        "tests/namespaces/test_credentials.py",
    ),
    bug(
        "namespaces-deltas-forget-the-namespace",
        "a client token of deltas is unknown outside of its namespaces",
        "server/auth/principals.py",
        "        both = Principals(None, SeveralVerifiers(verifiers), self.rotation, namespace=self.namespace)\n",
        "        both = Principals(None, SeveralVerifiers(verifiers), self.rotation)\n",
        "tests/namespaces/test_credentials.py",
    ),
    bug(
        "namespaces-share-the-store",
        "no row of one namespace is visible in another",
        "kernel/namespace.py",
        '    schema = next((value for key, _, value in pairs if key == "schema"), SCHEMA)\n',
        '    return url\n    schema = next((value for key, _, value in pairs if key == "schema"), SCHEMA)\n',
        "tests/kernel/test_namespace.py",
        "tests/store/postgres/test_namespaces.py",
    ),
    bug(
        "namespaces-grpc-ignores-the-metadata",
        "a call over gRPC is for the namespace that its metadata names",
        "server/grpc/server.py",
        '        return self._namespaces.get(call.fields.get(NAMESPACE) or b"", self.service)\n',
        "        return self.service\n",
        "tests/server/auth/test_access_matrix.py",
    ),
    bug(
        "namespaces-metrics-of-all",
        "a credential of one namespace is told nothing of another",
        "server/ops/endpoints.py",
        "render(self._context.metrics, accepted, principal.namespaces)\n",
        "render(self._context.metrics, accepted)\n",
        "tests/server/auth/test_access_matrix.py",
    ),
    bug(
        "namespaces-diagnosis-for-a-limited-credential",
        "a credential of one namespace is told nothing of another",
        "server/ops/endpoints.py",
        "        if principal.namespaces is not None and self._context.has_neighbours:\n",
        "        if False:\n",
        "tests/server/auth/test_access_matrix.py",
    ),
    bug(
        "namespaces-socket-of-the-default-one",
        "a WebSocket belongs to the namespace of its path",
        "server/namespace_app.py",
        "found[1].socket_at(slash + rest)\n",
        "self._default.socket_at(slash + rest)\n",
        "tests/server/auth/test_access_matrix.py",
    ),
    bug(
        "namespaces-fault-line-without-name",
        "the line of a fault names the namespace",
        "server/ops/metrics.py",
        "        return {**callers_facts(callers), **namespace_fact(self.namespace)}\n",
        "        return {**callers_facts(callers)}\n",
        _OPERATIONS,
    ),
    bug(
        "namespaces-task-lines-without-name",
        "the lines of a background task name its namespace",
        "server/process.py",
        "            with lines_of(context.namespace):\n                self._tasks +=",
        "            with lines_of(DEFAULT):\n                self._tasks +=",
        _OPERATIONS,
    ),
    bug(
        "namespaces-calls-without-name",
        "a line of the access log about a gRPC call names its namespace",
        "surfaces/ledger/grpc/listener.py",
        "            who, name = (actor, call.connection.peer), self._context.namespace\n",
        '            who, name = (actor, call.connection.peer), "default"\n',
        _OPERATIONS,
    ),
    bug(
        "namespaces-messages-without-name",
        "a line of the access log about a message names its namespace",
        "server/websocket/handshake.py",
        "        request.surface, request.namespace = self._surface.surface, self._context.namespace\n",
        "        request.surface = self._surface.surface\n",
        _OPERATIONS,
    ),
    bug(
        "namespaces-commit-spans-without-name",
        "the span of a commit names the namespace",
        "server/ops/traces.py",
        '{**call.subject, "db.system.name": self._store},',
        '{"semel.surface": call.subject["semel.surface"], "db.system.name": self._store},',
        _OPERATIONS,
    ),
    bug(
        "namespaces-doctor-looks-into-one",
        "the doctor looks into every namespace",
        "cli/doctor.py",
        "        for name in _namespaces(url):\n",
        "        for name in ():\n",
        _OPERATIONS,
    ),
    bug(
        "namespaces-bundle-of-the-default-one",
        "a bundle is that of the namespace that is named",
        "cli/diagnose.py",
        "        with within(client, namespace) as one:\n",
        "        with within(client, DEFAULT) as one:\n",
        _OPERATIONS,
    ),
)
