-- SPDX-License-Identifier: Apache-2.0
-- min: what Lua 5.1, 5.3 and 5.4 have in common, so that one file serves every slurmctld.
std = "min"
max_line_length = 100
read_globals = { "slurm" }
files["etc/job_submit.lua"] = { globals = { "slurm_job_submit", "slurm_job_modify" } }
files["etc/cli_filter.lua"] = {
  globals = { "slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit" },
}
files["tests/unit/lua"] = { globals = { "slurm" } }
