# SPDX-License-Identifier: Apache-2.0
"""A whole model's training step from its summary."""

from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.blocks import run
from slurm_coloc.estimate.rebuild.closed import hidden_ratio
from slurm_coloc.estimate.rebuild.given import given
from slurm_coloc.estimate.rebuild.opening import ResolvedBlocks, opened
from slurm_coloc.estimate.rebuild.scope import Scope
from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.estimate.summary import Summary


def rebuild(summary: Summary, scope: Scope, rows: ResolvedBlocks | None = None) -> Recording:
    """Of a summary with shapes. ``rows``: its tree, if it is at hand. Raises SummaryError
    number_out_of_range."""
    rows = rows or opened(summary)
    shape = given(summary)
    scope.hidden = hidden_ratio(summary, rows)
    scope.pixels = shape[-1] * shape[-2] if len(shape) == 4 else 0
    batch = Value(-1, scope.bytes(shape, scope.high), shape)
    made = run(scope, rows.top, batch, [batch])
    tape = scope.tape
    size = made.size * scope.loss // scope.low
    scores = made
    if size > made.size:  # autocast, and transformers' own loss, compute it in 32 bits
        scores = scope.run([made], made.shape, size)
    logits = scope.run([scores], made.shape, size, saves_output=True)  # log-softmax
    if scores is not made:
        scope.drop(scores)
    loss = scope.run([logits], (1,), 4, saves_inputs=[logits])
    scope.drop(logits)  # only its operator holds it; `made` has a name in the loop
    tape.backward(loss)
    # Parameters that no row shows (a footer counts them) live and are trained, too.
    rest = max(0, summary.parameters - sum(scope.parameters) - scope.frozen) * scope.weight
    trained = [int(count * scope.weight * scope.trained) for count in scope.parameters]
    fixed = [  # a share of more than 2^53 parameters may be rounded up
        max(0, count * scope.weight - own)
        for count, own in zip(scope.parameters, trained, strict=True)
    ]
    fixed.append(rest - int(rest * scope.trained))
    reached = min(1.0, tape.gradient_bytes / sum(trained)) if any(trained) else 1.0
    trained.append(int(rest * scope.trained))
    # What is trained has a gradient, also where the rebuilt path does not lead to it: no answer is
    # below parameters, gradients and states.
    if (missing := sum(trained) - tape.gradient_bytes) > 0:
        tape.gradient(missing)
    return Recording(
        parameters=tuple(trained),
        constants=(*(size for size in fixed if size), *scope.constants),
        inputs=(batch.size,),
        events=tuple(tape.events),
        gradients=tape.gradients,
        reached=reached,
    )
