"""The recipe for webhooks: signatures as Stripe makes them, events that come again, and a receiver that is killed."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.harness.server import HOST, free_port
from tests.harness.together import at_once, eventually
from tests.recipes.place import Place

CLIENT = httpx.Client(
    limits=httpx.Limits(max_keepalive_connections=0)
)  # one for all: to make one takes longer than a request
SECRET, OLD_SECRET = "whsec_now", "whsec_before"
DYING = """
from death import die_once
from webhook import app as inner
async def app(scope, receive, send):
    async def passed(message):
        if message["type"] == "http.response.start":
            die_once()  # behind the commit, before the first byte of the answer
        await send(message)
    await inner(scope, receive, passed)
"""
EVENT = {"id": "evt_7", "type": "charge.succeeded", "data": {"object": {"id": "ch_7", "amount": 5}}}


def body_of(**changes: object) -> bytes:
    """An event."""
    return json.dumps(EVENT | changes).encode()


def signature(body: bytes, *secrets: str, age: float = 0) -> str:
    """The header, with a signature for each secret, as while a secret is being changed."""
    at = str(int(time.time() - age))
    signed = [hmac.new(one.encode(), at.encode() + b"." + body, "sha256").hexdigest() for one in secrets]
    return ",".join([f"t={at}", *(f"v1={one}" for one in signed), "v0=6ffbb59b2300aae63f272406069a9788598b792a"])


class Receiver:
    """The service of the page."""

    def __init__(self, place: Place) -> None:
        place.env["WEBHOOK_SECRET"] = SECRET
        place.write("dying.py", DYING)
        self.place = place
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start it, as the page says."""
        port = free_port()
        self.url = f"http://{HOST}:{port}"
        with self.place.running("-m", "uvicorn", "dying:app", "--port", str(port), "--lifespan", "off"):
            eventually(self._answers, "it listens")
            yield

    def post(self, body: bytes, header: str | None = None) -> httpx.Response:
        """Send an event."""
        signed = signature(body, SECRET) if header is None else header
        return CLIENT.post(f"{self.url}/webhook", content=body, headers={"Stripe-Signature": signed}, timeout=25)

    def _answers(self) -> bool:
        with suppress(httpx.TransportError):
            CLIENT.get(self.url)
            return True
        return False


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    """A receiver that does not run yet."""
    return Receiver(Place(tmp_path))


def test_an_event_counts_once_however_often_it_comes(receiver: Receiver) -> None:
    with receiver.running():
        answers = at_once([lambda: receiver.post(body_of(pending_webhooks=1))] * 8)
        again = receiver.post(body_of(pending_webhooks=2))
        other = receiver.post(body_of(id="evt_8", type="charge.failed"))
    assert sorted(one.text for one in answers) == ['{"replayed":false}'] + ['{"replayed":true}'] * 7
    assert (again.status_code, again.json()) == (200, {"replayed": True})
    assert (other.status_code, other.json()) == (200, {"replayed": False})
    assert receiver.place.charges() == [("ch_7", 5)]


def test_what_is_not_signed_is_refused(receiver: Receiver) -> None:
    body = body_of()
    good = signature(body, SECRET)
    wrong = {
        "another secret": signature(body, OLD_SECRET),
        "too old": signature(body, SECRET, age=301),
        "of the future": signature(body, SECRET, age=-420),  # the calls before it take time
        "another body": signature(body_of(id="evt_8"), SECRET),
        "two times": f"t=1,{good}",
        "no time": good.partition(",")[2],
        "no signature": good.partition(",")[0],
        "another scheme": good.replace("v1=", "v0="),
        "no number": good.replace("t=", "t=a"),
        "nothing": "",
        "letters": "t=x,v1=zz",
    }
    with receiver.running():
        for name, header in wrong.items():
            assert receiver.post(body, header).status_code == 400, name
        assert receiver.place.charges() == []
        assert receiver.post(body, signature(body, OLD_SECRET, SECRET, age=290)).status_code == 200
    assert receiver.place.charges() == [("ch_7", 5)]


def test_a_receiver_that_is_killed_before_its_answer_charges_once(receiver: Receiver) -> None:
    with receiver.running():
        receiver.place.ask_for_death()
        with pytest.raises(httpx.TransportError):
            receiver.post(body_of())
    assert receiver.place.charges() == [("ch_7", 5)]
    with receiver.running():
        assert receiver.post(body_of()).json() == {"replayed": True}
    assert receiver.place.charges() == [("ch_7", 5)]
