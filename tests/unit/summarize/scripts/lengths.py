# SPDX-License-Identifier: Apache-2.0
"""Sequences of other lengths in each batch, packed: what a step keeps is in their numbers."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(1)
data = [torch.randint(1, 50, (5 + 3 * n % 17,)) for n in range(64)]


def batch(found: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return pad_sequence(found, batch_first=True), torch.tensor([len(one) for one in found])


table, network = nn.Embedding(50, 8).cuda(), nn.LSTM(8, 16, batch_first=True).cuda()
optimizer = torch.optim.Adam([*table.parameters(), *network.parameters()])
for words, lengths in DataLoader(data, 16, collate_fn=batch):
    packed = pack_padded_sequence(
        table(words.cuda()), lengths, batch_first=True, enforce_sorted=False
    )
    network(packed)[1][0].square().mean().backward()
    optimizer.step()
