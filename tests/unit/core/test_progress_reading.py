# SPDX-License-Identifier: Apache-2.0
"""Lines of trainings as the frameworks print them, and the numbers that are found in them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.core.time.progress.patterns import MOST
from slurm_coloc.core.time.progress.reading import Said, merged, read

BAR = "45%|####5     | 450/1000 [01:30<01:50,  5.00it/s, loss=0.5]"
OF_TEN = {"epoch": 3, "epochs": 10, "first": 3}
HALF = {"step": 450, "steps": 1000}

LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "tqdm": (f"Epoch 3/10:  {BAR}", OF_TEN | HALF | {"elapsed_s": 90}),
    "a bar alone": (BAR, HALF | {"elapsed_s": 90}),
    "a bar with units": (
        "train: 45%|##  | 1.2k/4.5k [1:02:03<01:50]",
        {"step": 1200, "steps": 4500, "elapsed_s": 3723},
    ),
    "a bar over epochs": (
        "Epochs:  20%|##    | 2/10 [01:00<04:00, 30.0s/it]",
        {"epoch": 3, "epochs": 10, "first": 3},
    ),
    "Lightning": (
        f"Epoch 2: 100%|####| 1000/1000 [03:20<00:00]\rEpoch 3:  {BAR}\r"
        "Validation DataLoader 0:  10%|# | 10/100 [00:01<00:10]",
        {"epoch": 3, "first": 2, "elapsed_s": 200} | HALF,
    ),
    "Lightning with Rich": (
        "Epoch 0/9 ━━━━━ 1000/1000 0:03:20 • 0:00:00 5.00it/s\n"
        "Epoch 3/9 ━━━━╺━━━━ 450/1000 0:01:30 • 0:01:50 5.00it/s v_num: 0",
        {"epoch": 3, "epochs": 9, "first": 0, "last": True, "elapsed_s": 200} | HALF,
    ),
    "Trainer": (
        f" {BAR}\n{{'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 1.35}}\n"
        "  3%|3| 3/100 [00:01<00:20]",
        HALF | {"exact": 1.35, "elapsed_s": 90},
    ),
    "Trainer of release 5": ("{'loss': '0.5', 'epoch': '1.35'}", {"exact": 1.35}),
    "Trainer's begin": (
        "***** Running training *****\n  Num examples = 1,000\n  Num Epochs = 3\n"
        "  Total optimization steps = 375",
        {"set_epochs": 3, "set_steps": 375, "trainer": True},
    ),
    "Keras 2": (
        "Epoch 3/10\n   1/1000 [............] - ETA: 3:20 - loss: 1.2\r"
        " 450/1000 [=====>......] - ETA: 1:50 - loss: 0.5",
        OF_TEN | HALF,
    ),
    "Keras 3": (
        "Epoch 3/10\n\x1b[1m 450/1000\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━━━━━━\x1b[0m"
        " \x1b[1m1:50\x1b[0m 5ms/step - loss: 0.5",
        OF_TEN | HALF,
    ),
    "Ignite": (
        "Epoch [3/10]: [450/1000]  45%|####5     , loss=0.5 [01:30<01:50]",
        OF_TEN | HALF,
    ),
    "ImageNet example": (
        "Epoch: [0][   1/5005]\tTime 1.2\nTest: [ 10/196]\tTime\n"
        "Epoch: [3][ 450/5005]\tTime  0.2 ( 0.2)\tLoss 5.1",
        {"epoch": 3, "first": 0, "step": 450, "steps": 5005},
    ),
    "MNIST example": (
        "Train Epoch: 3 [28800/60000 (48%)]\tLoss: 0.2",
        {"epoch": 3, "first": 3, "step": 28800, "steps": 60000},
    ),
    "timm": (
        "Train: 3 [ 450/1251 ( 36%)]  Loss: 6.9",
        {"epoch": 3, "first": 3, "step": 450, "steps": 1251},
    ),
    "tutorial": (
        "Epoch 0/24\n----------\ntrain Loss: 0.5 Acc: 0.7\n\nEpoch 1/24\n----------",
        {"epoch": 1, "epochs": 24, "first": 0, "last": True},
    ),
    "the end of each epoch": (
        "Epoch 1/10, loss 1.5\nEpoch 2/10, loss 1.0",
        {"epoch": 2, "epochs": 10, "first": 1, "ended": True},
    ),
    "epoch and step": ("Epoch [3/10], Step [450/1000], Loss: 0.5", OF_TEN | HALF),
    "fairseq": ("epoch 003:    450 / 1000 loss=3.2", {"epoch": 3, "first": 3} | HALF),
    "MMEngine": (
        "Epoch(train)   [3][ 450/1000]  lr: 1e-3  eta: 1:02:03  time: 0.2",
        {"epoch": 3, "first": 3, "left_s": 3723} | HALF,
    ),
    "Detectron2": (
        "[11/28 10:00:00 d2.utils.events]:  eta: 2 days, 1:02:03  iter: 459  total_loss: 1.2",
        {"step": 459, "left_s": 2 * 86400 + 3723},
    ),
    "DeiT": (
        "Namespace(batch_size=64, epochs=300, lr=0.1)\nEpoch: [3]  [ 450/1251]  eta: 0:01:50  lr",
        {"epoch": 3, "first": 3, "step": 450, "steps": 1251, "set_epochs": 300},
    ),
    "Ultralytics": (
        f"      Epoch    GPU_mem   box_loss\n      3/100      2.5G      1.2    20   640:  {BAR}",
        {"epoch": 3, "epochs": 100, "first": 3, "elapsed_s": 90} | HALF,
    ),
    "Megatron": (" iteration      450/    1000 | consumed samples:        28800", HALF),
    "nanoGPT": (
        "max_iters = 5000\niter 450: loss 3.2, time 12ms",
        {"step": 450, "set_steps": 5000},
    ),
    "JSON lines": (
        '{"train_loss": 6.9, "epoch": 3, "n_parameters": 5}',
        {"epoch": 3, "first": 3, "ended": True},
    ),
    "Skorch": (
        "  epoch    train_loss    valid_acc     dur\n-------  ------------  -----------  ------\n"
        "      1        \x1b[36m0.7895\x1b[0m       \x1b[32m0.7500\x1b[0m  2.3737\n"
        "      2        0.7499       0.7500  2.2557",
        {"epoch": 2, "first": 1, "ended": True},
    ),
    "nothing": ("loading the data\n2026-11-28 10:00:00 ready [pid 12]", {}),
    "a download": ("Downloading: 45%|## | 450/1000 [00:10<00:12]", {}),
}


@pytest.mark.parametrize("name", LINES)
def test_what_frameworks_print(name: str) -> None:
    text, expected = LINES[name]
    assert read("", text) == Said(**expected)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python\0train.py\0--epochs\x0010", {"set_epochs": 10}),
        ("python\0train.py\0--max_epochs=10", {"set_epochs": 10}),
        ("python\0run.py\0--num_train_epochs\x003", {"set_epochs": 3, "trainer": True}),
        ("python\0train.py\0--max-steps\x00500", {"set_steps": 500}),
        ("python\0train.py\0trainer.max_epochs=90", {"set_epochs": 90}),
        ("python\0train.py\0--warmup-epochs-lr\x005", {}),
    ],
)
def test_the_command_line_says_how_many(command: str, expected: dict[str, Any]) -> None:
    assert read("", "hello", command) == Said(**expected)


def test_the_begin_of_a_long_log_counts() -> None:
    """The first label tells whether epochs are counted from 0; the settings stand there too."""
    found = read("epochs: 20\nEpoch: [0][1/10]", "Epoch: [7][5/10]")
    assert (found.first, found.epoch, found.set_epochs) == (0, 7, 20)


def test_a_counter_from_before_the_label_is_of_another_epoch() -> None:
    found = read("", "Epoch 3/10\n1000/1000 [====] - loss: 1\nEpoch 4/10\n")
    assert (found.epoch, found.step, found.steps) == (4, 0, 1000)


def test_a_label_behind_its_bar_is_of_an_epoch_that_is_over() -> None:
    """As where a script prints it after the loop: the next bar is of the epoch after."""
    bar = " 50%|#### | 20/40 [00:10<00:10]"
    found = read("", f"100%|#####| 40/40 [00:20<00:00]\nepoch 0: done\n{bar}\n")
    assert (found.epoch, found.first, found.ended, found.step) == (0, 0, True, 20)
    header = read("", f"epoch 0\n100%|#####| 40/40 [00:20<00:00]\nepoch 1\n{bar}\n")
    assert (header.epoch, header.ended, header.step) == (1, False, 20)


def test_two_files_are_put_together() -> None:
    both = merged([read("", "Epoch 3/10\n"), read("", BAR)])
    assert (both.epoch, both.step, both.ended) == (3, 450, False)
    assert merged([read("", BAR), read("", "Total optimization steps = 375")]).trainer


@settings(max_examples=200, deadline=None)
@given(st.text(), st.text(alphabet="epochstrainlossteta: []|/%0123456789.-\r\n━•G<,"))
def test_any_text_gives_numbers(head: str, tail: str) -> None:
    for value in read(head, tail, head):
        assert value is None or 0 <= value <= MOST
