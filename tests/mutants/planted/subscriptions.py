"""Bugs in the subscriptions of streams."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

_MODEL = "tests/streams/subscriptions/test_model.py"
_RULES = "tests/streams/subscriptions/test_subscription_rules.py"
_ACCESS = "tests/streams/subscriptions/test_subscription_access.py"
_PLACE = "surfaces/streams/subscriptions"

SUBSCRIPTIONS = (
    bug(
        "subscriptions-mark-of-a-later-append-deleted",
        "an append that comes while marks are carried is not lost",
        f"{_PLACE}/rules/wakes.py",
        "    if mark is None or (mark.stream_id, mark.tail) != (command.stream_id, command.tail):\n",
        "    if mark is None:\n",
        _MODEL,
    ),
    bug(
        "subscriptions-append-without-a-mark",
        "an append to a subscribed stream leaves its mark in the same commit",
        "surfaces/streams/rules/append.py",
        "    if stream.subscribed and content.data:\n",
        "    if stream.subscribed and content.data and tail % 3:\n",
        _MODEL,
    ),
    bug(
        "subscriptions-append-before-adoption-missed",
        "an append between the creation of a link and its adoption is found",
        f"{_PLACE}/rules/configuration.py",
        "        found = has_work(known, living(stream, now))\n",
        "        found = False\n",
        _MODEL,
    ),
    bug(
        "subscriptions-cursor-of-a-deleted-stream-counts",
        "a stream that is created again counts from its beginning",
        f"{_PLACE}/rules/links.py",
        " if link.stream_id == stream.id else beginning(stream)\n",
        "\n",
        _MODEL,
    ),
    bug(
        "subscriptions-done-acks-the-tail-of-now",
        "done acknowledges the snapshot of the wake, not what came later",
        f"{_PLACE}/rules/wakes.py",
        "        acked = link._replace(acked=max(link.acked, link.snapshot))\n",
        "        acked = link._replace(acked=link.snapshot if stream is None else stream.tail)\n",
        _MODEL,
    ),
    bug(
        "subscriptions-stale-generation-accepted",
        "a call of an earlier wake is fenced",
        f"{_PLACE}/rules/leases.py",
        "    if (row.generation, row.wake_id) != (proof.generation, proof.wake_id) or not row.wake_id:\n",
        "    if not row.wake_id:\n",
        _MODEL,
    ),
    bug(
        "subscriptions-new-stream-linked-at-its-tail",
        "the first content of a stream that matches later counts",
        f"{_PLACE}/rules/links.py",
        "GLOB_KIND, start, READY))",
        "GLOB_KIND, stream.tail, READY))",
        _MODEL,
    ),
    bug(
        "subscriptions-stream-forgets-its-subscribers",
        "a stream with links leaves marks",
        f"{_PLACE}/rules/wakes.py",
        "stream.subscribed and not view.range(linked_range(command.scope)):\n",
        "stream.subscribed:\n",
        _MODEL,
    ),
    bug(
        "subscriptions-generation-reused",
        "each wake has a generation of its own",
        f"{_PLACE}/rules/phases.py",
        "generation=row.generation + 1,",
        "generation=row.generation + (0 if row.phase == LEASED else 1),",
        _MODEL,
    ),
    bug(
        "subscriptions-mapped-address-allowed",
        "an IPv6 address that carries an IPv4 address is judged as that",
        f"{_PLACE}/rules/webhook_url.py",
        "    if address.ipv4_mapped is not None:\n        return address.ipv4_mapped\n",
        "",
        _RULES,
    ),
    bug(
        "subscriptions-first-address-decides",
        "each address of a host must be allowed",
        f"{_PLACE}/rules/webhook_url.py",
        "    return bool(found) and all(",
        "    return bool(found) and any(",
        _RULES,
    ),
    bug(
        "subscriptions-connection-by-name",
        "a webhook goes to the address that was checked, not to what the name means a moment later",
        f"{_PLACE}/webhook_client.py",
        "            addresses[-1], target.port, ssl=context",
        "            target.host, target.port, ssl=context",
        _ACCESS,
    ),
    bug(
        "subscriptions-token-without-its-signature",
        "a token is valid only as the server has signed it",
        f"{_PLACE}/signature.py",
        "    if not hmac.compare_digest(mac.encode(), base64url(_mac(secret, payload)).encode()):\n",
        "    if not mac:\n",
        _RULES,
    ),
)
