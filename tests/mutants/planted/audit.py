"""Bugs in the chain of the audit log."""

from __future__ import annotations

from tests.mutants.planted.bug import Bug, bug

AUDIT: tuple[Bug, ...] = (
    bug(
        "audit-link-without-the-line-before",
        "a changed audit line is found by the line after it",
        "server/ops/audit_chain.py",
        "        return self.seq == link.lines + 1 and self.prev == link.digest\n",
        "        return self.seq == link.lines + 1\n",
        "tests/server/ops/test_audit_verify.py",
    ),
    bug(
        "audit-head-not-asked-for-the-end",
        "audit lines that are cut off at the end are missed",
        "server/ops/audit_verify.py",
        "        elif last < remembered.lines:\n",
        "        elif last < 0:\n",
        "tests/server/ops/test_audit_verify.py",
    ),
    bug(
        "audit-head-before-the-disk",
        "the head of the audit log is never ahead of its file",
        "server/ops/audit_chain.py",
        "        if self.is_behind:\n            return None\n        self._file.sync()",
        "        self._file.sync()",
        "tests/server/ops/test_audit_chain.py",
    ),
    bug(
        "audit-drop-not-told",
        "files that are dropped by size are no attack",
        "server/ops/audit_chain.py",
        '"kept_from": kept[0]}',
        '"kept_from": 1}',
        "tests/server/ops/test_audit_chain.py",
    ),
)
