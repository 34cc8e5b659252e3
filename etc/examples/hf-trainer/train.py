# SPDX-License-Identifier: Apache-2.0
"""A small GPT-2 by the Trainer of Hugging Face transformers, built from a configuration.

python train.py --summary > model.txt     what print(model) writes; the batch is an option
"""

import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

BATCH, LENGTH = 8, 128


class Words(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Random words."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(1000, (LENGTH,))
        return {"input_ids": words, "labels": words}


def main() -> None:
    config = GPT2Config(vocab_size=1000, n_positions=LENGTH, n_embd=128, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config)
    if "--summary" in sys.argv:
        print(model)
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH,
            max_steps=4,
            report_to=[],
            save_strategy="no",
        )
        Trainer(model=model, args=arguments, train_dataset=Words()).train()
    print(f"trained on {arguments.device}")


if __name__ == "__main__":
    main()
