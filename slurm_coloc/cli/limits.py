# SPDX-License-Identifier: Apache-2.0
"""coloc limits: limits in GPUs that keep their meaning when jobs ask in shards."""

from dataclasses import asdict

import typer

from slurm_coloc.admin.limits import Found, apply, read
from slurm_coloc.cli import render
from slurm_coloc.cli.options import AsJson
from slurm_coloc.config import load_config
from slurm_coloc.core.slurm.qos_limits import BILLING
from slurm_coloc.errors import UsageFault


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def limits(
        do_apply: bool = typer.Option(False, "--apply", help="Set what is missing."),
        dry_run: bool = typer.Option(False, "--dry-run", help="Only show it (the default)."),
        back: bool = typer.Option(False, "--undo", help="Take back what --apply set."),
        yes: bool = typer.Option(False, "--yes", help="With --apply: do not ask."),
        as_json: AsJson = False,
    ) -> None:
        """Find QOS and association limits in GPUs that do not count shares, and correct them.

        It shows the sacctmgr commands and, for each partition, TRESBillingWeights under which all
        shards of a GPU cost that GPU. It ends with 1 where something is missing. With --apply it
        runs the sacctmgr commands (as you: an operator of slurmdbd) and reads the limits again. Set
        the weights yourself in slurm.conf, before the limits. --apply records what it sets in
        daemon.state_dir; --undo with --apply takes back that and nothing else.
        """
        if do_apply and dry_run:
            raise UsageFault("--apply and --dry-run exclude each other")
        config = load_config()
        found = read(config, back=back)
        if as_json:
            render.print_json(_answer(found))
        else:
            _show(found, back)
        changes = found.plan.changes
        if do_apply and (changes or back):
            if changes and not yes:
                typer.confirm(f"Run these {len(changes)} sacctmgr commands?", abort=True, err=True)
            apply(config, found, lambda line: typer.echo(line, err=True), back=back)
        elif changes or any(price.proposed for price in found.prices):
            raise typer.Exit(0 if back or do_apply else 1)


def _answer(found: Found) -> dict[str, object]:
    plan = found.plan
    return {
        "way": plan.way,
        "each": plan.each,
        "why": plan.why,
        "rule": _rule(found),
        "commands": found.commands(),
        "undo": found.commands(reverse=True),
        "kept": plan.kept,
        "notes": list(plan.notes),
        "weights": [asdict(one) for one in found.prices],
    }


def _rule(found: Found) -> str:
    plan = found.plan
    if plan.way == BILLING:
        return (
            f"a limit of N GPUs gets billing = N x {plan.each}: N whole GPUs, all shards of N GPUs,"
            " or any mixture"
        )
    return (
        f"a limit of N GPUs gets gres/shard = N x {plan.each}: N whole GPUs and, beside them,"
        f" shares worth N (not one limit over both: {plan.why})"
    )


def _show(found: Found, back: bool) -> None:
    plan = found.plan
    if not back:
        typer.echo(f"Rule: {_rule(found)}.")
        for price in found.prices:
            state = f"set TRESBillingWeights={price.proposed}" if price.proposed else "right"
            typer.echo(f"Partition {price.partition}: {price.now or 'no weights'}: {state}")
            if price.warning:
                typer.echo(f"  Note: {price.warning}")
    if not plan.changes:
        done = "nothing to take back." if back else f"nothing to do ({plan.kept} kept as they are)."
        typer.echo(f"Limits: {done}")
    for line in found.commands():
        typer.echo(f"  {line}")
    for note in plan.notes:
        typer.echo(f"Note: {note}")
    if plan.changes and not back:
        typer.echo("To take it back: coloc limits --undo --apply, or by hand")
        for line in found.commands(reverse=True):
            typer.echo(f"  {line}")
