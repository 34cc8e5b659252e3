# SPDX-License-Identifier: Apache-2.0
"""Figures of a model for the history and the learned estimators: no names, no text."""

import hashlib

from slurm_coloc.estimate.estimator import TrainingOptions
from slurm_coloc.estimate.kinds import Role, role
from slurm_coloc.estimate.summary import Summary

SCHEMA = 1


def features(summary: Summary, options: TrainingOptions) -> dict[str, int | float | str]:
    """Counts by role and the options, schema 1. Strings are from closed sets, or a shape."""
    roles = dict.fromkeys((f"n_{kind.value}" for kind in Role), 0)
    widest = 0
    for layer in summary.layers:
        roles[f"n_{layer.role.value}"] += layer.count
        widest = max(widest, layer.output_elements)
    return {
        "schema": SCHEMA,
        "format": summary.format,
        "family": summary.family,
        "parameters": summary.parameters,
        "trainable": summary.trainable,
        "activations": summary.activations,
        "hidden_outputs": summary.hidden_outputs,
        "layers": len(summary.layers),
        "models": summary.models,
        "widest": widest,
        "batch_size": options.batch_size or summary.batch_in_text or 0,
        "seq_len": options.seq_len or 0,
        "input": "x".join(map(str, options.shape or ())),
        "optimizer": options.optimizer,
        "precision": options.precision,
        "gpus": options.gpus,
        **roles,
    }


def fingerprint(summary: Summary) -> str:
    """32 hex digits that name a model: the same at every batch size and for renamed classes.

    Taken over the order of roles, per-sample shapes, sizes and parameters, and over the recorded
    step where there is one: it tells checkpointing, accumulation and the loss, which the rows do
    not. So a text with a recording and one without are two models, as are a text cut at a depth and
    a whole one, and the same model printed with other columns.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{SCHEMA}|{summary.parameters}|{summary.trainable}".encode())
    for layer in summary.layers:
        sizes = sorted(value for key, value in layer.attributes if key != "zero")
        row = (role(layer.kind).value, layer.outputs, layer.parameters, layer.count, sizes)
        digest.update(repr(row).encode())
    if known := summary.recording:
        step = (known.accumulate, known.parameters, known.constants, known.inputs, known.events)
        digest.update(repr(step).encode())
    return digest.hexdigest()
