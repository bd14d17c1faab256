"""How do all ranks agree without using the process group under test? Through the rendezvous store.

A rank that waits for a key blocks in its socket, after announcing what it waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .context import Here

# How long a rank that found an error waits for the others' findings: they compare at the same time, and torchrun needs
# 0.1 s to notice the first rank that fails.
_PATIENCE_S = 1.0
_POLL_S = 0.02


RIGHT = "right"  # the finding of a rank on which nothing is wrong


def publish_right(here: Here, name: str) -> None:
    """Publish that this rank found nothing wrong, for the ranks that ask `reports_of_ranks` under this name."""
    if here.world > 1:
        here.torch.distributed.PrefixStore(f"mgpu/reports/{name}", here.store).set(str(here.rank), RIGHT)


def reports_of_ranks(here: Here, name: str, text: str) -> dict[str, str]:
    """Publish this rank's finding, and return those of the ranks that published one under this name, soon after."""
    found = {str(here.rank): text}
    if here.world == 1:
        return found
    store = here.torch.distributed.PrefixStore(f"mgpu/reports/{name}", here.store)
    store.set(str(here.rank), text)
    deadline = time.monotonic() + _PATIENCE_S
    while len(found) < here.world and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        for rank in range(here.world):
            if str(rank) not in found and store.check([str(rank)]):
                found[str(rank)] = store.get(str(rank)).decode()
    return dict(sorted(found.items(), key=lambda item: int(item[0])))


class Turns:
    """Decisions of rank 0 that the other ranks follow."""

    def __init__(self, here: Here, name: str) -> None:
        self.here, self.number = here, 0
        self.store: Any = None  # not needed by a single rank
        if here.world > 1:
            self.store = here.torch.distributed.PrefixStore(f"mgpu/{name}", here.store)

    def _key(self) -> str:
        self.number += 1
        return str(self.number)

    def broadcast(self, yes: bool) -> bool:
        """Return rank 0's value on every rank."""
        key = self._key()
        if self.store is None:
            return yes
        if self.here.rank == 0:
            self.store.set(key, "yes" if yes else "no")
            return yes
        return bool(self.store.get(key) == b"yes")

    def least(self, number: int) -> int:
        """Return the smallest of all ranks' numbers on every rank."""
        key = self._key()
        if self.store is None:
            return number
        self.store.set(f"{key}/{self.here.rank}", str(number))
        return min(int(self.store.get(f"{key}/{rank}")) for rank in range(self.here.world))

    def done(self, work: Callable[[], Any], members: int) -> Any:
        """Run `work()` on the first `members` ranks, while the others wait until rank 0 has finished it."""
        key = self._key()
        if self.here.rank >= members:
            who = "rank 0" if members == 1 else f"ranks 0 to {members - 1}"
            self.here.about_to(f"wait for {who}")
            self.store.get(key)
            return None
        found = work()
        if self.here.rank == 0 and self.store is not None:
            self.store.set(key, "done")
        return found
