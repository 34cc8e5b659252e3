# SPDX-License-Identifier: Apache-2.0
"""A whole model's training step from its summary."""

from slurm_coloc.estimate.kinds import Role, holds_activation
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.blocks import run
from slurm_coloc.estimate.rebuild.scope import Scope
from slurm_coloc.estimate.rebuild.tree import tree
from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.estimate.summary import Layer, Summary

# Kept elements over the outputs of modules with parameters, for rows that a depth limit hides: conv
# + BatchNorm + ReLU keep two tensors for two counted, SiLU nets three for two; where the
# normalisation holds the activation only the convolutions are counted; a Transformer block keeps 16
# widths for 11 counted.
HIDDEN_RATIO = {"cnn": 1.35, "cnn-act": 2.7, "transformer": 1.5, "mlp": 1.5}


def rebuild(summary: Summary, scope: Scope) -> Recording:
    """Of a summary with shapes. Raises SummaryError number_out_of_range."""
    first = summary.layers[0]
    shape = next(
        (x.inputs[0] for x in summary.layers if x.inputs),
        first.outputs[0] if first.outputs else (1,),
    )
    scope.hidden = _hidden(summary)
    given = Value(-1, scope.bytes(shape), shape)
    made = run(scope, tree(summary), given, [given])
    tape = scope.tape
    logits = scope.run([made], made.size, made.shape, saves_output=True)  # log-softmax
    loss = scope.run([logits], 4, (1,), saves_inputs=[logits])
    tape.backward(loss)
    for value in (made, logits):
        tape.drop(value.storage)
    scope.output_bytes = made.size
    # Parameters that no row shows (a footer counts them) live and are trained, too.
    rest = max(0, summary.parameters - sum(scope.parameters)) * scope.weight
    trained = [int(count * scope.weight * scope.trained) for count in scope.parameters]
    frozen = [
        count * scope.weight - own for count, own in zip(scope.parameters, trained, strict=True)
    ]
    return Recording(
        parameters=(*trained, int(rest * scope.trained)),
        constants=(*(size for size in frozen if size), *scope.constants, rest),
        inputs=(given.size,),
        events=tuple(tape.events),
        gradients=tape.gradients,
    )


def _hidden(summary: Summary) -> float:
    """What rows that a depth limit closed keep over their own outputs, from the elements that the
    footer counts and no row shows."""
    closed = sum(
        max(0, row.output_elements) * row.count for row in summary.layers if is_closed(row)
    )
    if not closed or not summary.hidden_outputs:
        return 0.0
    family = summary.family
    if family == "cnn" and any(holds_activation(row.kind) for row in summary.layers):
        family = "cnn-act"
    return summary.hidden_outputs * HIDDEN_RATIO.get(family, 1.5) / closed


def is_closed(row: Layer) -> bool:
    """Its parameters are those of rows below it that are not shown. Single vectors scale channels,
    and tables of positions have no rows."""
    if not row.leaf or row.role not in (Role.BLOCK, Role.ALIAS) or not row.outputs:
        return False
    return row.parameters > 2 * max(row.outputs[0]) and "pos" not in row.kind.lower()
