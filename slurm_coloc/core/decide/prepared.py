# SPDX-License-Identifier: Apache-2.0
"""What was estimated of a text before its job is submitted: one estimate for each case that the
submission may turn out to be.

It is made where users' texts are read (flow/prepare) and used where jobs are decided. It crosses a
process border as JSON: ``read`` checks every value and takes no more than the bounds below.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from slurm_coloc.core.decide.decision import BY_SITE, BY_USER, Estimate, Reason
from slurm_coloc.errors import UsageFault

SCHEMA = 1
MAX_VARIANTS = 256  # two for each calibrated GPU type, with ZeRO four
MAX_CARDS = 64  # of core/gpu/cards.py
MAX_FEATURES = 64
MAX_WORD = 64  # characters of a name
MAX_KEY = 512  # characters of what the user said of the training
MAX_DETAIL = 1000  # characters of what the user is told
MAX_NUMBER = 2**63 - 1

Feature = int | float | str


@dataclass(frozen=True, slots=True)
class Estimated:
    """An estimate, or why there is none, with what the history stores of the model.

    ``key``: the options without the batch size, under which measured runs are remembered; "" where
    a run says nothing of the model (an array whose tasks have different ones). ``batch``: 0 where
    it is not known. ``estimator``: name and version. ``context_mib``: that of the estimate, which
    has ``spare_mib`` more than is typical for the GPU.
    ``by_script``: it is a script that is known again (--coloc=auto), not a model.
    """

    estimate: Estimate | None
    no_estimate: Reason = Reason.NO_ESTIMATE
    detail: str = ""
    fingerprint: str = ""
    options: str = ""
    features: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    batch: int = 0
    estimator: str = ""
    context_mib: int = 0
    by_script: bool = False
    spare_mib: int = 0


def wider(made: Estimated, share: float) -> Estimated:
    """``made`` with a bound that allows for ``share`` more of what is above the context."""
    known = made.estimate
    if known is None:
        return made
    more = int(share * max(0, known.memory_mib - made.context_mib))
    return replace(made, estimate=replace(known, upper_mib=known.upper_mib + more))


def typical(made: Estimated) -> Estimated:
    """``made`` with the context in its estimate that is typical; its bound stays."""
    known = made.estimate
    if known is None or not made.spare_mib:
        return made
    return replace(made, estimate=replace(known, memory_mib=known.memory_mib - made.spare_mib))


def with_memory(made: Estimated, mib: int, uid: int) -> Estimated:
    """``made`` with the memory (MiB) that the user named in place of the estimate's. An estimate
    that is more is told beside it: the user may know better, or have forgotten something. Without
    a model and a script (salloc) a run is known by its user and by what he named: else nothing that
    it does would count for his next one."""
    if not made.fingerprint:
        made = replace(made, fingerprint=f"memory named by {uid}", options=f"{mib} MiB")
    known, detail = made.estimate, ""
    if known and known.upper_mib > mib:
        detail = f"without it {known.upper_mib} MiB would be reserved ({known.name})"
    elif made.no_estimate is Reason.BAD_SUMMARY:
        detail = f"{made.no_estimate.text}: {made.detail}"
    return replace(
        made, estimate=Estimate(BY_USER, mib, mib, known.smact if known else None), detail=detail
    )


#: why a job has no estimate and gets the site's share all the same: its text is there, or its
#: script; a busy machine or a wrong option says nothing of a job
UNKNOWN = frozenset(
    {Reason.NO_ESTIMATE, Reason.BAD_SUMMARY, Reason.SLOW_ESTIMATE, Reason.FIRST_RUN}
)


def with_site_share(made: Estimated, mib: int, uid: int) -> Estimated:
    """``made``, which has no estimate, with the share (MiB) that the site gives to such jobs; 0: to
    none. What a text that cannot be read does is remembered of its user."""
    if made.estimate or not mib or made.no_estimate not in UNKNOWN:
        return made
    if not made.fingerprint:
        made = replace(made, fingerprint=f"no estimate, of {uid}", options=f"{mib} MiB")
    why = ": ".join(filter(None, (made.no_estimate.text, made.detail)))
    return replace(made, estimate=Estimate(BY_SITE, mib, mib, None), detail=why)


@dataclass(frozen=True, slots=True)
class Variant:
    """The estimate on one software stack: of the calibrated GPU type ``stack``, "" for the types
    that were not calibrated; for so many ``processes`` of one training. ``activity``: SM
    activity (0 to 1) by the card's name in estimate/activity/cards.py."""

    stack: str
    processes: int
    estimated: Estimated
    activity: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """All variants of one text with one user's options; without ``variants`` the reason why there
    are none, as an Estimated without an estimate.

    ``lasting``: the same text and options give the same again. False where the machine or the user
    was busy: that may be estimated again and is not worth remembering.
    """

    variants: tuple[Variant, ...] = ()
    failed: Estimated = Estimated(None)
    lasting: bool = True

    @classmethod
    def without(cls, reason: Reason, detail: str = "", *, lasting: bool = True) -> "Prepared":
        """One that has no estimate, and why."""
        return cls((), Estimated(None, reason, detail[:MAX_DETAIL]), lasting)

    def of(self, stack: str, card: str, processes: int) -> Estimated:
        """What counts for a job that runs on ``stack`` and ``card`` (flow/estimators/calibrations:
        Stacks.choice) with so many processes of one training."""
        if not self.variants:
            return self.failed
        near = [one for one in self.variants if one.stack == stack and one.processes <= processes]
        found = max(near, key=lambda one: one.processes, default=None)
        if found is None:
            why = "the calibrations of GPU types have changed meanwhile"
            return Estimated(None, Reason.NO_ESTIMATE, why)
        made = found.estimated
        if made.key and processes > 1:
            made = replace(made, key=f"{made.key}/{processes} processes")
        if made.estimate is not None and card in found.activity:
            made = replace(made, estimate=replace(made.estimate, smact=found.activity[card]))
        return made

    def as_json(self) -> dict[str, Any]:
        """An object that ``read`` takes."""
        return {
            "schema": SCHEMA,
            "lasting": self.lasting,
            "failed": _written(self.failed),
            "variants": [
                {
                    "stack": one.stack,
                    "processes": one.processes,
                    "estimated": _written(one.estimated),
                    "activity": dict(one.activity),
                }
                for one in self.variants
            ],
        }

    @classmethod
    def read(cls, given: object) -> "Prepared":
        """From ``as_json``'s object. Raises UsageFault that names what is wrong."""
        top = _object(given, "prepared")
        if top.get("schema") != SCHEMA:
            raise _wrong("schema")
        variants = top.get("variants")
        if not isinstance(variants, list) or len(variants) > MAX_VARIANTS:
            raise _wrong("variants")
        return cls(
            tuple(_variant(_object(one, "variants")) for one in variants),
            _read(_object(top.get("failed"), "failed")),
            _flag(top, "lasting"),
        )


def _written(one: Estimated) -> dict[str, Any]:
    made = asdict(one)
    del made["by_script"], made["spare_mib"]  # they are known where it is used
    return made | {"no_estimate": str(one.no_estimate), "detail": one.detail[:MAX_DETAIL]}


def _wrong(name: str) -> UsageFault:
    return UsageFault(f"prepared estimate: {name}: not as it is written", "bad-request")


def _object(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(name)
    return value


def _flag(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name)
    if not isinstance(value, bool):
        raise _wrong(name)
    return value


def _word(values: Mapping[str, Any], name: str, longest: int = MAX_WORD) -> str:
    value = values.get(name)
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise _wrong(name)
    return value


def _count(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise _wrong(name)
    return value


def _ratio(value: object, name: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]
        raise _wrong(name)
    return float(value)  # type: ignore[arg-type]


def _variant(values: Mapping[str, Any]) -> Variant:
    activity = _object(values.get("activity"), "activity")
    if len(activity) > MAX_CARDS or any(len(name) > MAX_WORD for name in activity):
        raise _wrong("activity")
    return Variant(
        _word(values, "stack"),
        _count(values, "processes"),
        _read(_object(values.get("estimated"), "estimated")),
        {name: _ratio(value, "activity") for name, value in activity.items()},
    )


def _read(values: Mapping[str, Any]) -> Estimated:
    reason = _word(values, "no_estimate")
    if reason not in _REASONS:
        raise _wrong("no_estimate")
    return Estimated(
        _estimate(values.get("estimate")),
        Reason(reason),
        _word(values, "detail", MAX_DETAIL),
        _word(values, "fingerprint"),
        _word(values, "options", MAX_KEY),
        dict(_features(_object(values.get("features"), "features").items())),
        _word(values, "key", MAX_KEY),
        _count(values, "batch"),
        _word(values, "estimator"),
        _count(values, "context_mib"),
    )


_REASONS = frozenset(str(reason) for reason in Reason)


def _estimate(given: object) -> Estimate | None:
    if given is None:
        return None
    values = _object(given, "estimate")
    smact = values.get("smact")
    return Estimate(
        _word(values, "name"),
        _count(values, "memory_mib"),
        _count(values, "upper_mib"),
        None if smact is None else _ratio(smact, "smact"),
    )


def _features(items: Iterable[tuple[object, object]]) -> Iterable[tuple[str, Feature]]:
    for number, (name, value) in enumerate(items):
        if number >= MAX_FEATURES or not isinstance(name, str) or len(name) > MAX_WORD:
            raise _wrong("features")
        if isinstance(value, str):
            if len(value) > MAX_WORD:
                raise _wrong("features")
        elif type(value) not in (int, float) or not -MAX_NUMBER <= value <= MAX_NUMBER:  # type: ignore[operator]
            raise _wrong("features")
        yield name, value  # type: ignore[misc]
