-- SPDX-License-Identifier: Apache-2.0
--[[
cli_filter.lua (optional; CliFilterPlugins=lua, beside slurm.conf on login and GPU nodes) does two
things, each a function that a site's own cli_filter.lua can call.

keep_the_log: a --coloc job that is put back appends to its log (--open-mode=append), unless its
owner chose an open mode. Jobs without --coloc are as they were; JobFileAppend=1 would change them.

inside_a_share: `srun --gres=gpu:1 ...` inside a script goes on working after its job was rewritten
to shards. Only steps inside a job that holds shards through --coloc are looked at: COLOC_SHARDS is
set there by the plugin. A request for one GPU becomes "what the job has"; a request for more stays
and is refused by Slurm, as it should be.

A SPANK plugin can do neither: it sees a command's options only after the command has read them.
]]

-- Options of srun that ask for GPUs, as slurm_cli_pre_submit names them (22.05, 24.11).
local GPU_OPTIONS = { "gpus", "gpus-per-node", "gpus-per-task" }

-- Is it one GPU, typed or not: "1", "a100:1", "gpu", "gpu:1", "gres/gpu:a100:1"?
local function one_gpu(text, named)
  local rest = text:gsub("^gres[:/]", "")
  if named then
    if rest ~= "gpu" and not rest:find("^gpu[:=]") then return false end
    rest = rest:gsub("^gpu[:=]?", "")
  end
  local count = rest:match("(%d+)$")
  return not rest:find(",", 1, true) and (count == nil or count == "1")
end

local function inside_a_share(options)
  local shards = os.getenv("COLOC_SHARDS")
  if not shards or not shards:find("^%d+$") or not os.getenv("SLURM_JOB_ID") then return end
  local gres = options["gres"]
  if type(gres) == "string" and one_gpu(gres, true) then options["gres"] = "shard:" .. shards end
  for _, name in ipairs(GPU_OPTIONS) do
    local value = options[name]
    if type(value) == "string" and value ~= "" and one_gpu(value, false) then
      options[name] = ""
    end
  end
end

local function keep_the_log(options)
  local ours = options["spank"]["coloc"]
  if type(ours) ~= "table" or next(ours) == nil then return end
  if options["open-mode"] == nil then options["open-mode"] = "append" end
end

function slurm_cli_setup_defaults() return slurm.SUCCESS end

function slurm_cli_pre_submit(options)
  for _, change in ipairs({ inside_a_share, keep_the_log }) do
    local ok, problem = pcall(change, options)
    if not ok then slurm.log_error("coloc: cli_filter: %s", tostring(problem)) end
  end
  return slurm.SUCCESS
end

function slurm_cli_post_submit() return slurm.SUCCESS end
