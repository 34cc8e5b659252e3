-- SPDX-License-Identifier: Apache-2.0
--[[
coloc.lua: slurm-coloc in slurmctld's job_submit/lua plugin, as one function that a site's own
job_submit.lua calls last. It lives in one folder with the coloc_*.lua files that it loads.

    local coloc = dofile("/usr/libexec/slurm-coloc/coloc.lua")
    coloc.setup{socket = "/run/slurm-coloc/hook/colocd.sock"}
    return coloc.submit(job_desc, part_list, submit_uid)

The hook runs inside slurmctld, one copy at a time and under its locks: what it waits for, every
submission waits for. So a job without --coloc costs a look at its request and no call; a --coloc
job costs one request to colocd on a local socket, bounded by a deadline, and a daemon that did
not answer is left alone for a while (the breaker). An answer that is not understood costs only
its own job: one user's odd request must not send other users' jobs to whole GPUs. The Lua state,
and with it the breaker, lives until slurmctld restarts or job_submit.lua's mtime changes; new
coloc*.lua files are read only then.

Every string in job_desc is the user's, of any length: none is worked on before its length is
checked (coloc_request.lua, and job.too_long for the requests for GPUs), so that no user's job
costs slurmctld more than an honest one.

Whatever fails, the submission goes on: where --coloc was asked for, on a whole GPU.
Runs on Lua 5.1 (Debian's slurmctld), 5.3 and 5.4.
]]

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local wire = dofile(here .. "coloc_wire.lua")
local call = dofile(here .. "coloc_call.lua")
local job = dofile(here .. "coloc_job.lua")
local request = dofile(here .. "coloc_request.lua")
local steer = dofile(here .. "coloc_steer.lua")

local coloc = {}

local MESSAGE_MAX = 500 -- bytes of one line shown to the user
local NO_DECISION = "000000000000" -- decision id where colocd did not decide

-- When slurmctld had read slurm.conf and read this file: what colocd saw before may be out of date.
-- By the clock that nobody sets: colocd is on this host. nil where lua-posix has none.
local function now_ms()
  local ok, time = pcall(require, "posix.time")
  if not ok then return nil end
  local now = time.clock_gettime(time.CLOCK_MONOTONIC)
  return now.tv_sec * 1000 + math.floor(now.tv_nsec / 1000000)
end
local LOADED_MS = now_ms()
local NO_OFFSET = 4294967294 -- het_job_offset of a job that is no component of a heterogeneous one

local settings = {
  socket = "/run/slurm-coloc/hook/colocd.sock", -- no user can reach it
  off_file = "/etc/slurm-coloc/off",
  deadline_ms = 200, -- for the whole exchange
  breaker_s = 10, -- no call for 1, 2, 4, ... at most so long after late answers in a row
  refused_s = 0.25, -- no call after a refused connect: it costs 0.03 ms, and colocd is soon back
  raw_shard = "refuse", -- or "allow": shards that users ask for themselves
  exclusive_gres = "gres/gpu:1", -- a whole GPU until colocd has told; 22.05: all shards of one
  steered = "", -- models whose GPUs have a type each: "a100,h100"; see coloc_steer.lua
  whole_type = "", -- with MIG devices: the type of whole GPUs, for requests that name none
}

-- A whole GPU of this cluster as the last good answer named it.
local exclusive_gres

local LEAVING = "shards are being taken out of this cluster: ask for whole GPUs, --gpus=1"
local HINT = "shards are handed out by slurm-coloc: submit with sbatch --coloc=SUMMARY, which"
  .. " finds the size, instead of asking for shards"

local function log_info(text) slurm.log_info("%s", text) end

local function log_error(text) slurm.log_error("%s", text) end

-- One line for the user; log_user is a string.format on every release, so never the bare text.
local function tell(text)
  slurm.log_user("%s", "coloc: " .. tostring(text):sub(1, MESSAGE_MAX):gsub("%c", " "))
end

local own_uid
local function privileged(uid)
  own_uid = own_uid or call.own_uid()
  return uid == 0 or uid == own_uid
end

-- The switch that works while colocd is dead. Only "no such file" means on: a switch that cannot
-- be read counts as thrown.
local function switched_off()
  local file, _, code = io.open(settings.off_file, "r")
  if file then file:close() end
  return file ~= nil or not (code == 2 or code == 20) -- ENOENT, ENOTDIR
end

-- `coloc leave` writes "leave" into the switch: the shards are to go, so no job may ask for more.
local function leaving()
  local file = io.open(settings.off_file, "r")
  local word = file and file:read(5)
  if file then file:close() end
  return word == "leave" and settings.raw_shard ~= "allow"
end

local function report(job_desc, decision, action, reason, ms)
  log_info(("coloc: uid=%.0f decision=%s action=%s reason=%s ms=%.3f"):format(
    job_desc.user_id or -1, decision, action, reason, ms or 0))
end

local function refuse(text)
  tell(text)
  log_info("coloc: refused: " .. text)
  return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR
end

-- --coloc was asked for and colocd did not decide: a whole GPU, and say so.
local function on_whole_gpu(job_desc, code, text, ms)
  local gpus = job.asks_gpus(job_desc)
  local set, action, words = {}, "exclusive", "the job runs on a whole GPU"
  if (job_desc.het_job_offset or NO_OFFSET) < NO_OFFSET then
    -- A component may be one for CPUs alone.
    action, words = "asis", "the job goes as submitted"
  elseif gpus == nil then
    local others = job_desc.tres_per_node or ""
    local gpu = (exclusive_gres or settings.exclusive_gres):gsub("^gres[:/]", "")
    set.tres_per_node = (others == "" and "" or others .. ",") .. "gres/" .. gpu
  elseif gpus == 0 then
    action, words = "asis", "the job goes as submitted, without a GPU"
  elseif gpus > 1 then
    words = "the job runs on whole GPUs, as submitted"
  end
  local mark = ("coloc:1:%s:%s:%s:0"):format(NO_DECISION, action, code)
  set.admin_comment = job.comment_with(job_desc, mark, request.COMMENT_MAX)
  local ok, problem = job.apply(job_desc, set, {})
  if not ok then
    log_error("coloc: " .. problem)
    action, words = "asis", "the job goes as submitted"
  end
  report(job_desc, NO_DECISION, action, code, ms)
  tell(text .. "; " .. words)
end

-- The request's text, or nil and a fault where it or a field of it is too large to be composed.
local function compose(job_desc, options, ignored)
  local fields, why = request.fields(job_desc, options, LOADED_MS, ignored)
  if not fields then return call.too_large(why) end
  if wire.size(fields) > call.REQUEST_MAX then return call.too_large() end
  local text = wire.json(fields, call.REQUEST_MAX - 1)
  if not text then return call.too_large() end
  return text .. "\n"
end

-- A --coloc job: ask, check, apply, say what was decided. ignored: lines about what was too long.
local function take(job_desc, options, ignored)
  if options.version ~= "1" then
    local text = "the SPANK plugin is not of this version of slurm-coloc"
    return on_whole_gpu(job_desc, "plugin_version", text)
  end
  local function text_of() return compose(job_desc, options, ignored) end
  local text, why, ms = call.ask(text_of, settings)
  for _, line in ipairs(ignored) do tell(line) end
  if not text then return on_whole_gpu(job_desc, why.code, why.text, ms) end
  local answer, code, problem = wire.read_answer(text)
  if not answer then return on_whole_gpu(job_desc, code, problem, ms) end
  exclusive_gres = answer.exclusive_gres or exclusive_gres
  local set, env, given = answer.set, answer.env, answer.given
  if answer.action == "asis" then set, env, given = {}, {}, {} end
  if answer.mark then
    set.admin_comment = job.comment_with(job_desc, answer.mark, request.COMMENT_MAX)
  end
  local ok
  ok, problem = job.apply(job_desc, set, env, given)
  if not ok then
    log_error("coloc: decision=" .. answer.decision .. ": " .. problem)
    return on_whole_gpu(job_desc, "not_applied", "the request could not be rewritten", ms)
  end
  report(job_desc, answer.decision, answer.action, answer.reason, ms)
  for _, line in ipairs(answer.messages) do tell(line) end
end

-- A request by a model whose GPUs have a type each is refused as it stands.
local steered
local function untype(job_desc)
  steered = steered or steer.models(settings.steered)
  local ok, why = pcall(steer.apply, job_desc, steered, job.apply)
  if ok and not why then return end
  if ok then tell("the GPU's type stays as it is: " .. why) end
  log_error("coloc: steered: " .. tostring(why))
end

-- An untyped request could land on a MIG device.
local function name_whole_type(job_desc)
  if settings.whole_type ~= "" then job.name_type(job_desc, settings.whole_type) end
end

-- A request for resources that is too long to be looked at. slurmctld refuses it as well, but
-- shards must not pass this hook behind it.
local function too_long(why, submit_uid)
  if settings.raw_shard == "allow" or privileged(submit_uid) then
    tell(why .. ": --coloc is not looked at; the job goes as submitted")
    return slurm.SUCCESS
  end
  return refuse(why)
end

-- A job without --coloc.
local function without_options(job_desc, shards, submit_uid)
  if not shards then
    if not switched_off() then name_whole_type(job_desc) end
  elseif leaving() and not privileged(submit_uid) then
    return refuse(LEAVING)
  elseif not switched_off() and settings.raw_shard ~= "allow" and not privileged(submit_uid) then
    return refuse(HINT)
  end
  return slurm.SUCCESS
end

local function submit(job_desc, submit_uid)
  local why = job.too_long(job_desc)
  if why then return switched_off() and slurm.SUCCESS or too_long(why, submit_uid) end
  if settings.steered ~= "" and not switched_off() then untype(job_desc) end
  local options, ignored = request.options(job_desc)
  local shards = job.asks_shards(job_desc)
  if not options then
    for _, line in ipairs(ignored) do tell(line) end
    return without_options(job_desc, shards, submit_uid)
  end
  if switched_off() then
    if shards and leaving() then return refuse(LEAVING) end
    report(job_desc, NO_DECISION, "asis", "off")
    tell("switched off by the administrator; the job goes as submitted")
    return slurm.SUCCESS
  end
  if shards then
    return refuse("--coloc chooses the shards itself: leave shards out of the request")
  end
  take(job_desc, options, ignored)
  name_whole_type(job_desc)
  return slurm.SUCCESS
end

local function modify(job_desc, job_rec, submit_uid)
  if job.edits_gres(job_desc) and leaving() and not job.too_long(job_desc)
    and job.asks_shards(job_desc) and not privileged(submit_uid) then
    return refuse(LEAVING)
  end
  if not job.edits_gres(job_desc) or privileged(submit_uid) or switched_off() then
    return slurm.SUCCESS
  end
  local action = job.marked_action(job_rec)
  local taken = action and action ~= "asis"
  local why = (taken or settings.raw_shard ~= "allow") and job.too_long(job_desc)
  if why then return refuse(why) end
  if taken then
    local per_task = job.shares_per_task(job_rec)
    if per_task and job.edits_to_gpu_per_task(job_desc)
      or not per_task and job.edits_to_whole_gpu(job_desc) then
      log_info(("coloc: job=%.0f goes back to a whole GPU by its owner"):format(
        job_rec.job_id or 0))
      name_whole_type(job_desc)
      return slurm.SUCCESS
    end
    return refuse("slurm-coloc chose this job's GPU request; only whole GPUs ("
      .. (per_task and "TresPerTask=gres/gpu:1" or "TresPerNode=gres/gpu:1, Slurm 23.11 or newer")
      .. ") may be asked for instead")
  end
  if settings.raw_shard ~= "allow" and job.asks_shards(job_desc) then return refuse(HINT) end
  if not job.too_long(job_desc) then name_whole_type(job_desc) end
  return slurm.SUCCESS
end

-- An error of ours must never fail a user's submission.
local function guarded(hook, ...)
  local ok, rc = pcall(hook, ...)
  if ok then return rc end
  pcall(log_error, "coloc: error, the job goes as submitted: " .. tostring(rc))
  return slurm.SUCCESS
end

--- Decide over one submission. Returns what slurm_job_submit is to return.
function coloc.submit(job_desc, _, submit_uid) return guarded(submit, job_desc, submit_uid) end

--- Decide over one `scontrol update`. Returns what slurm_job_modify is to return. It runs under
--- slurmctld's write locks and calls nobody. (22.05 drops the line for the user here.)
function coloc.modify(job_desc, job_rec, _, submit_uid)
  return guarded(modify, job_desc, job_rec, submit_uid)
end

--- Change the settings above. A wrong one is logged and left at its default: an error here would
--- keep slurmctld from starting. Returns the module.
function coloc.setup(options)
  for key, value in pairs(options or {}) do
    local good = type(value) == type(settings[key])
    if key == "raw_shard" then good = value == "refuse" or value == "allow" end
    if type(value) == "number" and value < 0 then good = false end
    if good then
      settings[key] = value
    else
      log_error(("coloc: setup: bad %s = %s"):format(tostring(key), tostring(value)))
    end
  end
  return coloc
end

return coloc
