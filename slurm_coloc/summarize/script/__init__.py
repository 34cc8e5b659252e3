# SPDX-License-Identifier: Apache-2.0
"""`coloc summarize -- python train.py`: a user's script up to its first optimizer step.

The script runs as it is, on the CPU, with torch.cuda answering as if there were a GPU. From the
first forward of a model that trains on, tensors are fake. When the optimizer is about to step, the
recording is written and the process ends at once: nothing of the script runs afterwards, neither
its `finally` nor its exit handlers.
"""
