# SPDX-License-Identifier: Apache-2.0
"""Inputs that nobody would send by mistake, made from the examples: ``make fuzz``.

A target is a module with CORPUS (inputs that are right), ``mutated(random, inputs)`` (one more) and
``one(data)``, which raises where something gives way: an error that is not declared, a figure that
cannot be. ``run.py`` runs them; the C parts of spank/ have theirs in spank/tests/fuzz.c.
"""
