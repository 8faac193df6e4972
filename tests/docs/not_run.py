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


OPERATED = "it has the paths of the reader's machine; its options are parsed by tests/docs/test_docs.py, and "
PAGES: Mapping[str, Mapping[str, str]] = {
    "docs/once/proxy.md": {r"semel proxy|curl ": "tests/proxy/test_guide.py and test_command.py run the proxy"},
    "docs/once/recipes.md": {
        r"celery |python |uvicorn |semel once init": "tests/recipes starts each recipe with its own words"
    },
    "docs/operating/audit.md": {r"semel audit (?:verify|watch)": OPERATED + "tests/cli/test_audit_watch.py runs it"},
    "docs/operating/credentials.md": {
        r"semel |export |sha256sum|kill ": OPERATED + "tests/server/auth/test_credentials.py runs its examples"
    },
    "docs/operating/deploy.md": {r"sha256sum": "it needs a release"},
    "docs/operating/find-a-write.md": {r"semel find": "tests/docs/test_readme.py and tests/cli/test_find.py run it"},
    "docs/reference/http.md": {r"curl ": "it needs the streams of the guide; tests/streams lists streams"},
    "docs/reference/openapi.md": {r"curl ": "it needs jq; tests/openapi reads the document"},
}
"""Patterns of commands of one page that are not typed as they stand there, and what covers them instead."""


def reason_not_to_run(page: Path | str, line: str) -> str | None:
    """Why a command of a page is not run; None if it is to be run."""
    patterns = {**REASONS, **PAGES.get(str(page), {})}
    return next((reason for pattern, reason in patterns.items() if re.match(pattern, line)), None)
