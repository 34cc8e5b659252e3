# SPDX-License-Identifier: Apache-2.0
"""Part of a jupyterhub_config.py: notebooks on shares of GPUs, by batchspawner's SlurmSpawner.

The user chooses GPU memory and hours in the form. JupyterHub's own settings (authenticator,
addresses, TLS) are the site's. Tried with JupyterHub 6.1 and batchspawner 1.3.
"""

import html

import batchspawner  # noqa: F401  registers the handler by which a notebook tells its port

PARTITION = "jupyter"  # also in idle.interactive_partitions of coloc.toml
SHARES_GIB = (4, 8, 16, 24)
HOURS = (1, 4, 8)


def options_form(spawner):
    """The form before a notebook starts."""

    def choices(name, values, unit):
        found = "".join(f'<option value="{one}">{one} {unit}</option>' for one in values)
        return f'<select class="form-control" name="{name}">{found}</select>'

    text = html.escape("Memory of a shared GPU, for all of your kernels together")
    return (
        f"<label>{text}</label>{choices('share', SHARES_GIB, 'GiB')}"
        f"<label>Time</label>{choices('hours', HOURS, 'h')}"
    )


def options_from_form(form):
    """What was chosen in the form."""
    return {name: form[name][0] for name in ("share", "hours")}


async def before_start(spawner):
    """Write the choice into the batch script. Only what the form offers is taken: options can also
    come past it, by JupyterHub's API, and they become lines of a script."""
    chosen = {"share": SHARES_GIB[0], "hours": HOURS[0]} | spawner.user_options
    share, hours = int(chosen["share"]), int(chosen["hours"])
    if share not in SHARES_GIB or hours not in HOURS:
        raise ValueError(f"no such choice: {share} GiB, {hours} h")
    spawner.req_options = f"--gpus=1 --coloc-memory={share}G"
    spawner.req_runtime = f"{hours}:00:00"


c = get_config()  # noqa: F821  JupyterHub's
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.req_partition = PARTITION
c.SlurmSpawner.req_memory = "8G"  # of the host
c.SlurmSpawner.req_nprocs = "2"
c.SlurmSpawner.options_form = options_form
c.SlurmSpawner.options_from_form = options_from_form
c.SlurmSpawner.pre_spawn_hook = before_start
c.Spawner.start_timeout = 300  # a share may wait for room
