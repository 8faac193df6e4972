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
    r"docker |kubectl |helm ": "there is no cluster; tests/docs/test_deploy_commands.py compares them with deploy/",
    r"sudo |systemctl ": "it changes the machine; tests/docs/test_deploy_commands.py installs the files in a folder",
    r"patronictl ": "it needs a Patroni cluster; `make nightly NAME=ha` runs one",
    r"make (?:nightly|bench|crash|run|release|docs)": "it takes minutes; CI runs its parts",
    r"gh |git clone ": "it needs a forge",
    r"openssl rand ": "it makes a secret for a cluster",
    r"printf '\[\[token\]\]": "it makes a secret for a cluster",
}
"""Patterns of commands, and why they are not run."""


PAGES: Mapping[str, Mapping[str, str]] = {
    "docs/once/recipes.md": {
        r"celery --app tasks worker": "tests/recipes/test_celery.py starts a worker of `tasks`",
        r"python -c 'import tasks; tasks.charge.delay\(": "tests/recipes/test_celery.py sends tasks.charge",
        r"uvicorn webhook:app": "tests/recipes/test_webhook.py starts uvicorn with the webhook, and kills it",
        r"semel once init shop\.db": "tests/recipes/test_mcp.py types it",
        r"python billing\.py": "tests/recipes/test_mcp.py starts billing.py",
    },
    "docs/once/proxy.md": {r"SEMEL_PROXY_UPSTREAM=": "tests/proxy/test_command.py starts it with these variables"},
    "docs/operating/deploy.md": {r"sha256sum": "it needs a release"},
    "docs/reference/openapi.md": {r"curl ": "it needs jq; tests/openapi reads the document"},
}
"""Patterns of commands of one page that are not typed as they stand there, and what covers them instead."""


def reason_not_to_run(page: Path | str, line: str) -> str | None:
    """Why a command of a page is not run; None if it is to be run."""
    patterns = {**REASONS, **PAGES.get(str(page), {})}
    return next((reason for pattern, reason in patterns.items() if re.match(pattern, line)), None)
