# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning of decoder language models in the style of LLMem. A baseline, not for production.

After Kim et al., "LLMem: Estimating GPU Memory Usage for Fine-Tuning Pre-Trained LLMs" (IJCAI
2024), which adds up, for mixed precision with Adam on one GPU: the context; the parameters in 16
bits, whose chunks the gradients use again; the optimizer's fp32 copy and moments; and the outputs,
those of the Transformer's layers in 16 bits apart from lm_head's, which stand in 16 and in 32 bits.
The paper's chunk sizes (Colossal-AI) are not modelled, and its equations were not at hand: this is
the same sum, written from its description. Elsewhere than with AMP or bf16 and Adam it is outside
what the paper covers, and says so.
"""

from slurm_coloc.estimate.estimator import Estimate, TrainingOptions
from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.lexing import bounded
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.replay.training import OPTIMIZERS
from slurm_coloc.estimate.summary import Summary
from slurm_coloc.estimate.tokens import tokens_in_text, with_tokens


class LLMem:
    """See the module."""

    name = "llmem"
    version = "1"

    def estimate(self, summary: Summary, options: TrainingOptions, stack: Stack) -> Estimate:
        """See Estimator.estimate. No figure for anything but a language model."""
        table = max(
            (x.parameters for x in summary.layers if x.role is Role.EMBEDDING and x.leaf), default=0
        )
        width = _width(summary)
        if summary.family != "transformer" or not table or not width:
            reason = "LLMem is for language models: no embedding of words is in the summary"
            return Estimate(reason=reason)
        tokens = options.seq_len or tokens_in_text(summary) or options.default_seq_len
        shaped = summary if summary.shapes else with_tokens(summary, tokens)
        batch = -(-(options.batch_size or 1) // options.gpus)
        wide = 4 if options.precision == "fp32" else 2
        state = 4 * sum(OPTIMIZERS[options.optimizer].state) + (4 if wide == 2 else 0)
        # In 16 bits the gradients take the chunks of the parameters; in fp32 there are no chunks.
        fixed = summary.parameters * wide + summary.trainable * (state + (4 if wide == 4 else 0))
        text = tokens_in_text(summary) or tokens
        outputs = shaped.activations * tokens // text * wide
        logits = tokens * (table // width) * (wide + 4)
        mib = bounded(int(fixed) + batch * (outputs + logits)) // 2**20 + 1 + stack.context_mib
        notes = [f"sequence length {tokens}" + ("" if options.seq_len else " assumed")]
        if wide == 4 or not options.optimizer.startswith("adam"):
            notes.append("LLMem covers mixed precision with Adam: this is outside it")
        return Estimate(mib, mib, notes=tuple(notes))


def _width(summary: Summary) -> int:
    """The hidden width: of the first normalisation or embedding that shows one."""
    for layer in summary.layers:
        if layer.role in (Role.NORM, Role.EMBEDDING) and layer.leaf:
            shown = layer.outputs[0][-1] if layer.outputs else 0
            if own := layer.attribute("width") or max(0, shown):
                return own
    return 0


ESTIMATORS = (LLMem(),)
