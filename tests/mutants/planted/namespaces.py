"""Bugs in the separation of namespaces."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

NAMESPACES = (
    bug(
        "namespaces-limited-credential-known-everywhere",
        "a credential that is limited to namespaces is unknown in every other one",
        "server/auth/principals.py",
        "        if known.namespaces is not None and self._namespace not in known.namespaces:\n",
        "        if known.namespaces is not None and not known.namespaces:\n",
        "tests/namespaces/test_credentials.py",
    ),
    bug(
        "namespaces-deltas-forget-the-namespace",
        "a client token of deltas is unknown outside of its namespaces",
        "server/auth/principals.py",
        "        both = Principals(None, _Several(verifiers), self.rotation, namespace=self._namespace)\n",
        "        both = Principals(None, _Several(verifiers), self.rotation)\n",
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
        '        call.service = self._namespaces.get(call.fields.get(NAMESPACE) or b"", self.service)\n',
        "        call.service = self.service\n",
        "tests/namespaces/test_isolation.py",
    ),
)
