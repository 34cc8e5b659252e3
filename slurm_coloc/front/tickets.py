# SPDX-License-Identifier: Apache-2.0
"""Tickets: a user's text is estimated here, its estimates go to the main process, and the user gets
the ticket by which the submission of the job finds them there."""

import hashlib
from dataclasses import asdict
from typing import Annotated, Any, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slurm_coloc.adapters.server import Message
from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.optimizers import Optimizer
from slurm_coloc.core.peer import Peer
from slurm_coloc.core.per_user import PerUser
from slurm_coloc.errors import ColocError, UsageFault
from slurm_coloc.estimate.request import SHAPE, TRAINING_FORM, Given
from slurm_coloc.flow.prepare.estimates import Estimates
from slurm_coloc.flow.queries.site import Main

log = structlog.get_logger()

MAIN_S = 5.0  # for the main process, which answers from memory
MAX_PACKED = 65536  # characters; the SPANK plugin sends no more
TEXTS, TEXTS_A_USER = 1 << 24, 1 << 22  # characters of packed texts that are kept

Small = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Options(BaseModel):
    """What of a ticket's request is looked at: the text, and what the user says of the training."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    summary: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/=]+$", max_length=MAX_PACKED)]
    batch_size: Small | None = None
    seq_len: Small | None = None
    optimizer: Optimizer | None = None
    precision: Literal["fp32", "amp", "bf16"] | None = None
    alloc_conf: Annotated[str, Field(max_length=512)] | None = None
    input: Annotated[str, Field(pattern=SHAPE)] | None = None
    training: Annotated[str, Field(pattern=TRAINING_FORM)] | None = None

    @property
    def given(self) -> Given:
        """The options without the text."""
        return Given(**self.model_dump(exclude={"summary"}))


class Tickets:
    """Under one configuration at a time."""

    def __init__(self, config: EstimateConfig, main: Main) -> None:
        """Raises ConfigError for a calibration that is wrong, or an estimator that cannot run."""
        self._main = main
        self._estimates = Estimates(config)
        # By their hashes: a submission that names a text by its hash, and other options than its
        # ticket's, can so be estimated for the next time.
        self._texts: PerUser[str, str] = PerUser(TEXTS, TEXTS_A_USER, len)

    async def start(self) -> None:
        """Start what reads the texts; never raises."""
        await self._estimates.start()

    async def use(self, config: EstimateConfig) -> None:
        """Another configuration; raises ConfigError, and the old one stays."""
        estimates, before = Estimates(config), self._estimates
        await estimates.start()
        self._estimates = estimates
        before.close()

    def close(self) -> None:
        """End what reads the texts."""
        self._estimates.close()

    async def give(self, peer: Peer, message: Message) -> Message:
        """op ``ticket``: the ticket for a text with these options; raises ColocError."""
        try:
            options = Options.model_validate(message.get("coloc"))
        except ValidationError as err:
            first = err.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UsageFault(f"ticket: {where}: {first['msg']}", "bad-request") from None
        text = hashlib.sha256(options.summary.encode()).hexdigest()
        self._texts.put(peer.uid, text, options.summary)
        request = {
            "uid": peer.uid,
            "text": text,
            "given": asdict(options.given),
            "basis": self._estimates.basis,
        }
        found = await self._main.call("ticket", MAIN_S, **request)
        if "ticket" in found:  # it was known there
            return found
        estimates = self._estimates
        made = await estimates.prepare(peer.uid, options.summary, options.given)
        request |= {"basis": estimates.basis, "prepared": made.as_json()}
        return await self._main.call("ticket", MAIN_S, **request)

    async def prepare(
        self, uid: int, text: str, packed: str | None, given: dict[str, Any]
    ) -> Message:
        """Estimate a text of which a submission had no estimate, for its next one; raises
        ColocError."""
        packed = packed or self._texts.get(text)
        if packed is None:
            raise ColocError("the text is not here", "unknown")
        estimates = self._estimates
        made = await estimates.prepare(uid, packed, Given(**given))
        return {"basis": estimates.basis, "prepared": made.as_json()}
