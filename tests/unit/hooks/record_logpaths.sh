#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Records where slurmstepd really writes a job's log, one job for each pattern, on the cluster that
# SLURM_CONF names: record_logpaths.sh WORKDIR >logpaths-RELEASE.json. Run as a plain user with
# python3, in an empty folder on the one node; array jobs get task 13.
set -euo pipefail
work=$(realpath "$1")
cd "$work"
cat >job.sh <<'JOB'
#!/bin/bash
log=$(readlink /proc/$$/fd/1)
printf '%s\0' "$SLURM_JOB_ID" "${SLURM_ARRAY_JOB_ID:-}" "${SLURM_ARRAY_TASK_ID:-}" "$PAT" "$log" \
    >".rec.$SLURM_JOB_ID"
JOB
chmod 755 job.sh
one=(a-%j b-%A c-%a d-%b e-%J f-%N g-%n h-%s i-%t j-%u k-%x l-%%j m-%%%j n-%4j-%3t-%2n-%5s o-%12j
    p-%012j q-%0j r-%10x-%3N-%9u s-%z-%j t-%j-% u-%j-%5 'v-\%j' 'w-a\\%j' x-%5z%j y-%w-%W-%i-%j
    z-%4A-%3a-%3b aa-%4J bb-%% cc-%j%j%%%x dd-%7 $'nl\n%j')
array=(A-%A_%a B-%j C-%4a-%9A D-%b-%3b E-%J-%x)
for pattern in "${one[@]}"; do PAT=$pattern sbatch -J 'nm x' -o "$pattern" job.sh >&2; done
for pattern in "${array[@]}"; do
    PAT=$pattern sbatch --array=13 -J 'nm x' -o "$pattern" job.sh >&2
done
PAT='' sbatch job.sh >&2
PAT='' sbatch --array=13 job.sh >&2
for _ in $(seq 300); do
    [[ -n $(squeue -h -u "$USER") ]] || break
    sleep 0.2
done
python3 - "$work" "$(sbatch --version | cut -d' ' -f2 | cut -d. -f1,2)" <<'PY'
import getpass, json, os, pathlib, sys
rows = []
for file in pathlib.Path(sys.argv[1]).glob(".rec.*"):
    job, master, task, pattern, log = file.read_text().split("\0")[:5]
    array = [int(master), int(task)] if master else None
    rows.append([int(job), array, pattern or None, log.replace(sys.argv[1], "/wd", 1)])
head = {"slurm": sys.argv[2], "user": getpass.getuser(), "host": os.uname().nodename.split(".")[0],
        "node_name": "n1", "job_name": "nm x", "work_dir": "/wd"}
lines = ",\n".join(" " + json.dumps(row) for row in sorted(rows, key=lambda r: r[0]))
print(json.dumps(head)[:-1] + ', "rows": [\n' + lines + "\n]}")
PY
