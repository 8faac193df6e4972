"""Who takes part in a simulated run."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any

from tests.events.model.library_clients import LibraryTail, LibraryWriter, ThreadedWriter
from tests.events.model.model import Log
from tests.events.model.naive_tail import NaiveTail
from tests.events.model.peers import Manner, Peer, ProjectPeer, SeedPeer, World, Writer
from tests.events.model.visitors import Auditor, Crowd, Poster, Tail

NAMES = ("p-0", "p-1", "p-2", "p-é", "p-\ue000", "p-\U0001f600")


class Cast:
    """The clients of a run."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._seed = seed
        self.peers: list[Peer] = []
        self.posters: list[Poster | LibraryWriter] = []
        self.tails: list[Tail | LibraryTail | NaiveTail] = []
        self.crowds: list[Crowd] = []

    @property
    def writers(self) -> list[Writer]:
        """Everybody with an outbox."""
        return [peer for peer in self.peers if peer.manner.writes] + list(self.posters)

    def lives(self) -> list[Coroutine[Any, Any, None]]:
        """What everybody does, the auditor too."""
        lives = [peer.live() for peer in self.peers] + [poster.live() for poster in self.posters]
        lives += [tail.live() for tail in self.tails]
        lives += [crowd.live() for crowd in self.crowds]
        return [*lives, Auditor(self._world, random.Random(self._seed)).live()]

    def missing(self, log: Log) -> dict[str, set[int]]:
        """What followers have not got yet of the whole log; what one wrote itself it knows from the answers."""
        lacks = {tail.name: set(log.matching(tail.names)) - set(tail.seen) for tail in self.tails}
        for peer in self.peers:
            if peer.replica is not None:
                wanted = set(log.matching(peer.replica.names))
                lacks[peer.name] = wanted - peer.replica.applied - peer.outbox.places
        return {name: ids for name, ids in lacks.items() if ids}

    def seed_peers(self, count: int, manner: Manner) -> None:
        """Clients of the seed dialect."""
        for _ in range(count):
            name, chance = self._next("seed")
            follows = chance.sample(NAMES, chance.randrange(1, 4))
            self.peers.append(SeedPeer(self._world, name, chance, manner, follows))

    def project_peers(self, count: int, manner: Manner) -> None:
        """Clients of 2.x, each in a project that is a partition of the others."""
        for _ in range(count):
            name, chance = self._next("project")
            project = chance.choice(NAMES[:4])
            self.peers.append(ProjectPeer(self._world, name, chance, manner, [project], project))

    def post(self, count: int, manner: Manner) -> None:
        """Clients that post."""
        for _ in range(count):
            self.posters.append(Poster(self._world, *self._next("post"), manner))

    def library(self) -> None:
        """Clients of the library: two that submit, and one that follows."""
        for kind in (LibraryWriter, ThreadedWriter):
            self.posters.append(kind(self._world, *self._next("library"), Manner()))
        name, chance = self._next("library")
        self.tails.append(LibraryTail(self._world, name, chance, NAMES[:4]))

    def crowd(self, count: int) -> None:
        """Clients that keep the server's readers busy."""
        self.crowds.append(Crowd(self._world, count))

    def tail(self, count: int) -> None:
        """Clients that follow by server-sent events."""
        for _ in range(count):
            name, chance = self._next("tail")
            self.tails.append(Tail(self._world, name, chance, chance.sample(NAMES, 3), 0.3))

    def naive(self, count: int) -> None:
        """Clients that follow by WebSocket with one cursor, as the guide says."""
        for _ in range(count):
            name, chance = self._next("naive")
            self.tails.append(NaiveTail(self._world, name, chance, chance.sample(NAMES, 3), 0.05))

    def _next(self, kind: str) -> tuple[str, random.Random]:
        number = len(self.peers) + len(self.posters) + len(self.tails)
        return f"{kind}-{number}", random.Random(f"{self._seed} {number}")


def whole_cast(cast: Cast) -> None:
    """Everybody there is."""
    cast.seed_peers(2, Manner())
    cast.seed_peers(1, Manner(writes=False, follows=True, cuts=0.01))
    cast.seed_peers(1, Manner(writes=False, follows=True, cuts=0.01, restless=5))
    cast.seed_peers(1, Manner(writes=False, follows=True, cuts=0.005, is_slow=True))
    cast.seed_peers(2, Manner(follows=True))
    cast.project_peers(1, Manner())
    cast.project_peers(1, Manner(writes=False, follows=True, cuts=0.01, restless=5))
    cast.project_peers(1, Manner(follows=True))
    cast.post(2, Manner(cuts=0.2))
    cast.tail(1)
    cast.naive(2)


def churning_cast(cast: Cast) -> None:
    """Subscriptions that change all the time, in long pages, while others write without a pause.

    The server is kept busy, so that events are often committed and handed on between a page's snapshot and its answer.
    """
    hasty = (0.0, 0.004)
    cast.crowd(4)
    cast.post(1, Manner(cuts=0, pace_seconds=hasty, batch=80))
    cast.seed_peers(2, Manner(cuts=0, pace_seconds=hasty))
    cast.seed_peers(1, Manner(writes=False, follows=True, cuts=0))
    cast.seed_peers(4, Manner(writes=False, follows=True, cuts=0, restless=6, pace_seconds=hasty, limits=(300,)))
    cast.project_peers(1, Manner(writes=False, follows=True, cuts=0.01, restless=5, limits=(1000,)))


def writing_cast(cast: Cast) -> None:
    """Clients that write, those of the library too, and two that look on; none of them breaks off by itself."""
    cast.seed_peers(3, Manner(cuts=0))
    cast.project_peers(2, Manner(cuts=0))
    cast.post(2, Manner(cuts=0))
    cast.library()
    cast.seed_peers(1, Manner(writes=False, follows=True, cuts=0))
