# SPDX-License-Identifier: Apache-2.0
"""What the main process knows of users' texts: their estimates, and the tickets for them.

The front estimates a text before its job is submitted and hands the estimates over; the user gets a
ticket, which the job's submission names. Nothing here reads a text.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from slurm_coloc.core.decide.prepared import Prepared
from slurm_coloc.core.per_user import PerUser
from slurm_coloc.estimate.request import Given

LIVES_S = 60.0  # from the ticket to the submission; sbatch takes milliseconds
#: variants (core/decide/prepared.py) that are kept by tickets and by hashes, some 4 KB each: two a
#: text, two more for each calibrated GPU type. A heterogeneous job has a ticket for each component.
TICKETS, TICKETS_A_USER = 8192, 1024
KNOWN, KNOWN_A_USER = 8192, 4096


def hash_of(packed: str) -> str:
    """What a text is known by: SHA-256 of its forwarded form, as the SPANK plugin computes it."""
    return hashlib.sha256(packed.encode(errors="replace")).hexdigest()


#: a setting of PyTorch's allocator that never takes more than none. sbatch --export puts it into
#: the job's environment after the plugin has read sbatch's own
GROWS = "expandable_segments:True"


@dataclass(frozen=True, slots=True)
class Key:
    """What an estimate is of: the text by its hash, and what the user said of the training."""

    text: str
    given: Given


@dataclass(frozen=True, slots=True)
class Ticket:
    """``until_s``: monotonic seconds."""

    uid: int
    key: Key
    prepared: Prepared
    until_s: float


def _weight(prepared: Prepared) -> int:
    return max(1, len(prepared.variants))


class Texts:
    """Estimates by their keys, and tickets, each good once. All is forgotten at a restart."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds."""
        self._clock = clock
        self._basis = ""
        self._known: PerUser[Key, Prepared] = PerUser(KNOWN, KNOWN_A_USER, _weight)
        self._tickets: PerUser[str, Ticket] = PerUser(
            TICKETS, TICKETS_A_USER, lambda ticket: _weight(ticket.prepared)
        )

    def use(self, basis: str) -> None:
        """``basis``: what the estimates follow from (request.Defaults.basis). Another one than
        before: all estimates are forgotten, and tickets for them."""
        if basis != self._basis:
            self._known.clear()
            self._tickets.clear()
        self._basis = basis

    def learn(self, uid: int, key: Key, prepared: Prepared, basis: str) -> bool:
        """Take the estimates of a text; False where they follow from another configuration."""
        if basis != self._basis:
            return False
        if prepared.lasting:
            self._known.put(uid, key, prepared)
        return True

    def known(self, key: Key) -> Prepared | None:
        """The estimates of a text, whoever sent it: they are the same for all users."""
        return self._known.get(key)

    def give(self, uid: int, key: Key, prepared: Prepared) -> str:
        """A ticket for the estimates: 32 hexadecimal digits."""
        name = secrets.token_hex(16)
        self._tickets.put(uid, name, Ticket(uid, key, prepared, self._clock() + LIVES_S))
        return name

    def take(self, name: str, uid: int, key: Key) -> Prepared | None:
        """What a ticket stands for; None where it is not this user's, for this text and these
        options, or not good any more. It is good once."""
        ticket = self._tickets.get(name)
        if ticket is None or ticket.uid != uid:
            return None
        self._tickets.drop(name)
        if key.given.alloc_conf == GROWS and not ticket.key.given.alloc_conf:
            key = replace(key, given=replace(key.given, alloc_conf=ticket.key.given.alloc_conf))
        return ticket.prepared if ticket.key == key and ticket.until_s > self._clock() else None
