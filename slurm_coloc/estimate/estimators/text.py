# SPDX-License-Identifier: Apache-2.0
"""From the text alone: the model rebuilt, its step replayed through PyTorch's allocator.

memory = context + what the caching allocator takes from the driver in two training steps, of plain
models also in an epoch's last one: estimate/rebuild makes the steps, estimate/replay plays them.
"""

from dataclasses import dataclass, replace
from operator import itemgetter

from slurm_coloc.estimate.estimator import Estimate, TrainingOptions
from slurm_coloc.estimate.rebuild.again import BLOCKS, STAGES, classes
from slurm_coloc.estimate.rebuild.closed import known
from slurm_coloc.estimate.rebuild.conventions import drops, lifts_loss, of_sequences
from slurm_coloc.estimate.rebuild.doubt import doubts, unseen
from slurm_coloc.estimate.rebuild.model import rebuild
from slurm_coloc.estimate.rebuild.opening import ResolvedBlocks, opened
from slurm_coloc.estimate.rebuild.products import hides_attention
from slurm_coloc.estimate.rebuild.scope import Scope
from slurm_coloc.estimate.rebuild.stored import (
    EAGER,
    HEAD,
    OWN_HEAD,
    may_store_scores,
    stores_scores,
)
from slurm_coloc.estimate.rebuild.tied import caches, computes_loss, headed, once
from slurm_coloc.estimate.replay.margin import Tier, upper_mib
from slurm_coloc.estimate.replay.parallel import replicated
from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.replay.training import Loop, accumulating, lasting, parts_of, training
from slurm_coloc.estimate.shaped import with_shapes
from slurm_coloc.estimate.summary import Summary

#: what stored scores may add to an estimate, as a factor, before it is no figure any more
MOST = 2.0


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of an activation that autocast lowers, of a weight, of its half copy."""

    low: int
    weight: int
    copy: int


# amp: fp32 weights and a half copy that autocast keeps; bf16: everything in two bytes.
PRECISION = {"fp32": Precision(4, 4, 0), "amp": Precision(2, 4, 2), "bf16": Precision(2, 2, 0)}

#: Sizes of an epoch's last batch over the others': a DataLoader gives what is left
#: (drop_last=False), and no summary tells the number of samples. All sizes are equally likely:
#: these are the quartiles.
RESTS = (0.25, 0.5, 0.75)
#: what the user is told of the texts whose margins are wide, whatever is in them
WIDE = {
    **dict.fromkeys(
        (Tier.CUT, Tier.PUBLISHED),
        ("wider margin: rows below the depth limit are not shown (torchinfo: depth=20)",),
    ),
    **dict.fromkeys(
        (Tier.FLAT, Tier.FLAT_TOKENS), ("wider margin: torchsummary shows no tree, torchinfo does",)
    ),
}
KERAS = "wider margin: the rules are PyTorch's, and Keras runs on another framework as a rule"
#: rows of a text whose step is replayed at each of these; no MLP that trains has more
MOST_ROWS = 2_000


#: shares of the trained bytes with a gradient in the rebuilt step, below which it is no figure,
#: and below which the margin is the wider one
REACHED = (0.5, 0.98)


class Text:
    """See the module."""

    name = "text"
    version = "7"

    def estimate(self, summary: Summary, options: TrainingOptions, stack: Stack) -> Estimate:
        """See Estimator.estimate."""
        shaped, reason, notes = with_shapes(summary, options)
        if reason := reason or unseen(shaped):
            return Estimate(reason=reason, notes=notes)
        shaped = headed(once(shaped))
        eager, rows = stores_scores(shaped), opened(shaped)
        missing = shaped.rows.parameters < 0.98 * shaped.parameters
        if shaped.collapsed and (
            _lost(shaped, rows) or (not shaped.hidden_outputs and (rows.closed or missing))
        ):
            return Estimate(reason=shaped.unopened, notes=notes)
        step = step_of(shaped, options, _part(options), eager, rows)
        share = f"the rebuilt step leads to {step.reached:.0%} of what is trained"
        if step.reached < REACHED[0]:
            return Estimate(reason=f"{share}: record it with coloc summarize", notes=notes)
        memory, loop = _memory_mib(step, shaped, options, stack, eager, rows)
        unknown = doubts(shaped)
        if unknown:
            notes += (f"wider margin: what {', '.join(unknown[:3])} does inside is not known",)
        if step.reached < REACHED[1]:
            notes += (f"wider margin: {share}",)
        if options.checkpointed:
            notes += (_recomputed(rows),)
        doubtful = bool(unknown) or step.reached < REACHED[1] or options.checkpointed
        tier = _tier(shaped, rows, doubtful)
        if shaped.format.startswith("keras"):
            tier = tier if tier is Tier.CUT else Tier.DOUBTFUL
            notes += (KERAS,)
        else:
            notes += WIDE.get(tier, ())
        upper = upper_mib(memory, stack.context_mib, tier, options.level) + stack.spare_mib
        if options.checkpointed:
            stages = step_of(shaped, options, _part(options), eager, rows, STAGES)
            worst, _ = _memory_mib(stages, shaped, options, stack, eager, rows)
            more = upper_mib(worst, stack.context_mib, tier, options.level) + stack.spare_mib
            upper = max(upper, more)
        if not eager and (may := may_store_scores(shaped)):
            # The class does not say whether scores are stored: the bound takes them in.
            kind, head = may
            stored = step_of(shaped, options, _part(options), head, rows)
            worst, _ = _memory_mib(stored, shaped, options, stack, head, rows)
            if head == OWN_HEAD and worst - stack.context_mib > MOST * (memory - stack.context_mib):
                reason = f"whether {kind} stores its scores is in no row: record it"
                return Estimate(reason=f"{reason} with coloc summarize", notes=notes)
            more = int(worst * 1.02)
            if head == OWN_HEAD:
                more = upper_mib(worst, stack.context_mib, tier, options.level)
            if (more := more + stack.spare_mib) > upper:
                upper = more
                notes += (f"wider margin: {kind} may store its scores",)
        parts = parts_of(loop, memory, stack.context_mib) if options.by_part else {}
        return Estimate(memory, upper, notes=notes, parts=parts)


def _recomputed(rows: ResolvedBlocks) -> str:
    """What the user is told of gradient checkpointing."""
    kinds = classes(rows.top)
    if not kinds:
        return "no block stands beside one of its class: none is taken to be recomputed"
    return f"wider margin: each {', '.join(kinds[:3])} is taken to be recomputed in the backward"


def _lost(summary: Summary, rows: ResolvedBlocks) -> bool:
    """Outputs that the footer counts and no row stands for, not even a closed one: lists of blocks
    that run several times have rows without shapes or parameters (transformers' PVT)."""
    if (
        any(row.output_elements > 0 for row in rows.closed)
        or 5 * rows.found > summary.hidden_outputs
    ):
        return False
    left = summary.hidden_outputs - rows.found
    return left > 0.2 * (summary.activations + summary.hidden_outputs)


def _tier(summary: Summary, rows: ResolvedBlocks, doubtful: bool) -> Tier:
    """A text is cut where rows stay closed, or the footer counts what no row has. It is flat where
    its blocks stand beside their rows (torchsummary)."""
    # Where rows were opened, the footer must count as much as they have.
    hidden = summary.hidden_outputs
    unlike = bool(rows.found) and (abs(rows.found - hidden) > 0.05 * (summary.activations + hidden))
    missing = summary.rows.parameters < 0.98 * summary.parameters or unlike
    # Rows that were opened are not known to store scores.
    stored = not stores_scores(summary) and any(map(EAGER.match, summary.rows.kinds))
    if summary.collapsed and (missing or rows.closed or stored):
        whole = summary.rows.parameters >= 0.98 * summary.parameters
        return Tier.PUBLISHED if whole and known(summary, rows) else Tier.CUT
    flat = all(row.depth == 0 for row in summary.layers)
    if (flat and any(not row.leaf for row in summary.layers)) or (
        summary.format == "torchsummary" and summary.family != "mlp"
    ):
        hides = summary.family == "transformer" and hides_attention(summary.layers)
        return Tier.FLAT_TOKENS if hides else Tier.FLAT
    return Tier.DOUBTFUL if doubtful else Tier.TEXT


def _memory_mib(
    step: Recording,
    summary: Summary,
    options: TrainingOptions,
    stack: Stack,
    eager: int,
    rows: ResolvedBlocks,
) -> tuple[int, Loop]:
    """MiB of the fullest GPU of the process, and its training; in the middle of RESTS where modules
    are plain."""
    part = _part(options)
    plain = _plain(summary)
    # Nothing is beyond the replay where modules are plain: measured MLPs are exact.
    model = None if plain else lasting(step, options.optimizer, options.precision)
    several = plain and len(summary.layers) <= MOST_ROWS
    sizes = {int(part * share) for share in RESTS} - {0} if several else set()
    peaks: list[tuple[int, Loop]] = []
    for size in sorted(sizes) or [0]:
        rest = step_of(summary, options, size, eager, rows) if size else None
        loop = training(
            step,
            options.optimizer,
            stack.workspace,
            blas=stack.blas,
            ranks=options.ranks,
            ahead=not plain,
            precision=options.precision,
            rest=rest,
        )
        peaks.append((stack.peak_mib(loop.sizes, model), loop))
    return sorted(peaks, key=itemgetter(0))[(len(peaks) - 1) // 2]


def _part(options: TrainingOptions) -> int:
    """Samples a GPU."""
    return -(-(options.batch_size or 1) // options.gpus)


def _plain(summary: Summary) -> bool:
    """Whether the training is taken for PyTorch's modules with their defaults in a plain loop: no
    activation runs in place and no batch is fetched ahead. 2,437 measured MLPs fit this, measured
    image models fit the opposite."""
    return summary.family == "mlp"


def step_of(
    summary: Summary,
    options: TrainingOptions,
    batch: int,
    eager: int,
    rows: ResolvedBlocks,
    again: str = BLOCKS,
) -> Recording:
    """What one step of ``batch`` samples allocates on the first GPU. ``eager``: the width of heads
    whose scores are stored, 0 where they are not. ``again``: what gradient checkpointing runs once
    more, see rebuild/again."""
    precision = PRECISION[options.precision]
    # Rows that are marked as frozen are left out; of the others a footer may know a share.
    free = summary.parameters - summary.rows.frozen
    share = min(1.0, summary.trainable / free) if free > 0 else 1.0
    scope = Scope(
        batch=batch,
        low=precision.low,
        high=4 if options.precision == "amp" else precision.low,
        loss=precision.low if options.precision == "bf16" and not lifts_loss(summary) else 4,
        weight=precision.weight,
        trained=share,
        drops=drops(summary),
        eager=bool(eager),
        head=eager or HEAD,
        inplace=not _plain(summary),
        caches=caches(summary),
        printed=summary.format == "reprtree",
        own=of_sequences(summary),
        checkpoints=again if options.checkpointed else "",
        rotary=any("rotary" in kind.lower() for kind in summary.rows.kinds),
    )
    step = rebuild(summary, scope, rows)
    # Of parameters in rows that are not understood autocast is taken to copy all.
    left = max(0, sum(step.parameters) // precision.weight - scope.copied) * precision.copy
    step = replace(step, constants=(*step.constants, left) if left else step.constants)
    if options.gpus > 1:
        step = replicated(step, options.gpus, not computes_loss(summary))
    return accumulating(step) if options.accumulate else step


ESTIMATORS = (Text(),)
