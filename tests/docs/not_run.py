"""The commands and blocks of the pages that the tests do not run, each with its reason.

A command that is not here is run, or read by its tool: `tests/docs/test_blocks.py` says which page is covered by what.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"

REASONS: Mapping[str, str] = {
    r"(?:sudo )?(?:/\S+/)?pip install |python3 -m venv ": "the packages are installed in the environment of the tests",
    r"semel serve$": "the tests have started this server",
    r"docker |kubectl |helm ": "there is no container daemon and no cluster where the tests run",
    r"sudo |systemctl ": "it changes the machine",
    r"patronictl ": "it needs a Patroni cluster; `make ha` runs one",
    r"make (?:failover|ha|bench|crash|soak|run|release|mutants|docs)": "it takes minutes; CI runs its parts",
    r"gh |git clone ": "it needs a forge",
    r"openssl rand ": "it makes a secret for a cluster",
    r"printf '\[\[token\]\]": "it makes a secret for a cluster",
}
"""Patterns of commands, and why they are not run."""


def reason_not_to_run(page: Path, line: str) -> str | None:
    """Why a command of a page is not run; None if it is to be run."""
    return next((reason for pattern, reason in REASONS.items() if re.match(pattern, line)), None)
