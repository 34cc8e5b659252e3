# SPDX-License-Identifier: Apache-2.0
"""What colocd keeps, as records: one for a row of its database. adapters/store makes them.

A field is a column of adapters/store/schema. Memory is in MiB, times are Unix seconds, lengths of
time seconds; None: not known.
"""
