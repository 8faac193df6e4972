"""The URL of a store for messages and logs: without a password, whatever is wrong with the URL.

What cannot be told apart is left out: a malformed URL may have its password where a host or a port belongs.
"""

from __future__ import annotations

import re

HIDDEN = "..."
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")
_HOST = r"(?:[\w.-]*|\[[0-9A-Fa-f:.%]*\])(?::[0-9]{1,5})?"
_PLAIN = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*://{_HOST}(?:,{_HOST})*(?:/[^@]*)?")
"""A URL of hosts, ports and a path."""
_USER = re.compile(r"//.*@", re.DOTALL)
"""Up to the last @: a password that was not percent-encoded may contain any character."""
_KEYWORDS = re.compile(r"(?:^|\s)(?:host|hostaddr|port|dbname|user|password|passfile|service|sslpassword)\s*=")


def shown_url(url: str) -> str:
    """A URL without user, query and fragment; a path as it is."""
    scheme = shown_scheme(url)
    if is_keywords(url):
        return HIDDEN
    if "//" not in url:
        return f"{scheme}:{HIDDEN}" if ":" in url and "@" in url else url
    plain = re.split(r"[?#]", _USER.sub("//", url))[0]
    return plain if _PLAIN.fullmatch(plain) else f"{scheme}://{HIDDEN}"


def shown_scheme(url: str) -> str:
    """What stands before the colon of a URL; empty if that may be anything."""
    found = _SCHEME.match(url)
    return "" if found is None else found[0]


def is_keywords(text: str) -> bool:
    """Whether a text is a connection string of libpq, `host=... password=...`, which would be taken for a path."""
    return "://" not in text and _KEYWORDS.search(text) is not None
