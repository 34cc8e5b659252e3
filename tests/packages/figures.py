# SPDX-License-Identifier: Apache-2.0
"""What the node's part takes on a GPU node: disk, memory of the agent, time of the hooks' start."""

import math
import re

from tests.packages.hosts import NODES, Hosts

NODE = NODES[0]
ROUNDS = 300
#: each call's microseconds, as a line; the command has to end by itself. bash's own clock: date(1)
#: would add its start, half of a short command's time
TIMES = """
for n in $(seq {rounds}); do
  begin=${{EPOCHREALTIME/./}}; {command} >/dev/null 2>&1; end=${{EPOCHREALTIME/./}}
  echo $((end - begin))
done
"""


def installed(hosts: Hosts, host: str = NODE) -> dict[str, int]:
    """KiB of each package there."""
    shown = hosts.run(host, "dpkg-query -W -f '${Package} ${Installed-Size}\\n'").stdout
    return {name: int(size) for name, size in re.findall(r"^(\S+) (\d+)$", shown, re.MULTILINE)}


def lines_of(hosts: Hosts, before: dict[str, int]) -> str:
    """The figures as lines; ``before``: the packages that were there without us."""
    new = {name: size for name, size in installed(hosts).items() if name not in before}
    ours = sum(size for name, size in new.items() if name.startswith("slurm-coloc"))
    compiled = hosts.run(NODE, "du -sk /usr/lib/slurm-coloc").stdout.split()[0]
    agent = hosts.run(NODE, "systemctl show -p MainPID --value slurm-coloc-agent").stdout.strip()
    held = hosts.run(NODE, f"grep VmRSS /proc/{agent}/status").stdout.split()[1]
    lines = [
        f"disk: {sum(new.values()) / 1024:.1f} MiB in {len(new)} new packages, ours"
        f" {ours / 1024:.1f} MiB ({int(compiled) / 1024:.1f} MiB with compiled modules)",
        f"agent: {int(held) / 1024:.1f} MiB resident",
        f"Prolog of another job: {_times(hosts, '/usr/libexec/slurm-coloc/coloc-prolog')}",
        # Without slurmd's environment it ends once all is loaded.
        f"start of `coloc prolog`: {_times(hosts, 'coloc prolog')}",
        f"a bare python3: {_times(hosts, 'python3 -I -c pass')}",
    ]
    return "\n".join(f"  {line}" for line in lines)


def _times(hosts: Hosts, command: str) -> str:
    shown = hosts.run(NODE, TIMES.format(rounds=ROUNDS, command=command)).stdout.split()
    spent = sorted(int(one) / 1000 for one in shown)
    middle, high = spent[len(spent) // 2], spent[math.ceil(len(spent) * 0.99) - 1]
    return f"p50 {middle:.1f} ms, p99 {high:.1f} ms"
