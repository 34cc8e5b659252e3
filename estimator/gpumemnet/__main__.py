# SPDX-License-Identifier: Apache-2.0
"""``python -m estimator.gpumemnet COMMAND``: see README.md beside this file."""

import argparse
import sys
from pathlib import Path

import torch

from estimator.measured import SHARED

ROOT = Path(__file__).resolve().parents[2]
NETS = ROOT / "slurm_coloc" / "estimate" / "baselines" / "nets"
CACHE = Path.home() / ".cache" / "slurm-coloc" / "gpumemnet"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m estimator.gpumemnet")
    commands = parser.add_subparsers(dest="command", required=True)
    reproduce = commands.add_parser("reproduce", help="the thesis' accuracies on its measured MLPs")
    reproduce.add_argument("--shared", type=Path, default=SHARED, help="folder with data/")
    reproduce.add_argument("--seeds", type=int, default=3)
    collect = commands.add_parser("collect", help="draw models and record a step of each")
    collect.add_argument("family", choices=("mlp", "cnn", "transformer", "timm"))
    collect.add_argument("--cache", type=Path, default=CACHE, help="outside the checkout")
    collect.add_argument("--texts", type=Path, help="timm only: torchinfo texts, NAME.full")
    collect.add_argument("--count", type=int, default=400)
    collect.add_argument("--seconds", type=float, default=3600.0, help="stop after")
    train = commands.add_parser("train", help="train, judge and export the networks of a family")
    train.add_argument("family", choices=("mlp", "cnn", "transformer"))
    train.add_argument("--cache", type=Path, default=CACHE)
    train.add_argument("--shared", type=Path, default=SHARED)
    train.add_argument("--texts", type=Path, help="folder of torchinfo texts, NAME.full")
    train.add_argument("--out", type=Path, default=NETS)
    train.add_argument("--parts", type=int, default=3, help="folds that are judged")
    train.add_argument("--quick", action="store_true", help="no folds: only what is shipped")
    judge = commands.add_parser("evaluate", help="the shipped networks on measured rows")
    judge.add_argument("--shared", type=Path, default=SHARED)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.command == "reproduce":
        from estimator.gpumemnet.reproduce import main as run

        return run(args.shared, args.seeds)
    if args.command == "evaluate":
        from estimator.gpumemnet.evaluate import main as evaluate

        return evaluate(args.shared)
    if args.command == "train":
        from estimator.gpumemnet.train import main as train_main

        return train_main(
            args.cache, args.shared, args.texts, args.family, args.out, not args.quick, args.parts
        )
    if args.family == "timm":
        from estimator.gpumemnet.collect import published

        return published(args.cache, args.texts or Path(), args.seconds)
    from estimator.gpumemnet.collect import main as fill

    return fill(args.cache, args.family, args.count, args.seconds)


if __name__ == "__main__":
    sys.exit(main())
