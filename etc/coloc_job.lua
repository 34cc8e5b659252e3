-- SPDX-License-Identifier: Apache-2.0
--[[
coloc_job.lua: reads slurmctld's job_desc for coloc.lua, and writes to it, all or nothing.

Seen in the job_desc of 22.05.8 and 24.11.5:
* unset numbers read 65534 or 4294967294, unset strings nil; min_mem_per_node and min_mem_per_cpu
  read nil where the other one or none was given;
* assigning nil raises; "" clears a string; 65534 and 4294967294 assigned make a number unset
  again, but an unset memory cannot be put back (2^64-2 is no double): hence ORDER;
* tres_* must carry the release's own spelling, gres:gpu:1 (22.05) or gres/gpu:1 (24.11): the
  other one is refused. Assigning job_desc.gres = "gpu:1" adds the right prefix on both;
* an unknown field is logged by slurmctld and else ignored: hence the look after the write;
* 24.11 sends -c 3 also as tres_per_task "cpu=3", and --gpus-per-task=1 as tres_per_task
  "gres/gpu=1" with tres_bind; 22.05 as tres_per_task "gres:gpu:1";
* --gpus=0 is tres_per_job "gres/gpu:0"; the first component of a het job has offset 0;
* --gpu-freq=high is tres_freq "gpu:high"; --gpu-bind=closest is tres_bind "gpu:closest" (22.05)
  or "gres/gpu:closest" (24.11); --ntasks-per-gpu=2 is ntasks_per_tres 2; default_account, the
  user's own in slurmdbd, reads nil without slurmdbd; a field that a release lacks reads nil;
* the plugin may make admin_comment as long as it likes (300 KB were taken by both), unlike
  comment, and the job goes on;
* script is the batch script's text, nil for salloc and srun; argv is a table of its path and its
  arguments, argc their number (tried on 22.05);
* bitflags holds --gres-flags=one-task-per-sharing (slurm.GRES_ONE_TASK_PER_SHARING, 2^38; 24.11
  and 26.05, 22.05 has neither) and can be written; a double holds all bits below 2^53;
* the environment is there for batch jobs only; assigning to an absent name would add it.
]]

local job = {}

local TRES = { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }
-- admin_comment is not among them: colocd gives the mark only, coloc.lua joins the two.
local STRINGS = {
  "account", "partition", "qos", "features", "reservation", "req_nodes",
  "exc_nodes", "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_freq",
  "tres_bind", "cpus_per_tres", "mem_per_tres",
}
-- Number fields and the smallest value that means "unset".
local NUMBERS = {
  { "time_limit", 4294967294 }, { "num_tasks", 4294967294 }, { "ntasks_per_node", 65534 },
  { "min_nodes", 4294967294 }, { "max_nodes", 4294967294 }, { "min_cpus", 4294967294 },
  { "cpus_per_task", 65534 }, { "min_mem_per_node", 2 ^ 53 }, { "min_mem_per_cpu", 2 ^ 53 },
  { "requeue", 65534 }, { "ntasks_per_tres", 65534 },
}
-- Names that an srun inside the script reads back.
local ENVIRONMENT = {
  "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
  "SLURM_CPUS_PER_GPU", "SLURM_MEM_PER_GPU", "SLURM_GPU_BIND", "SLURM_GPU_FREQ",
  "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_GPU",
}
local OPTIONS = {
  COLOC_SUMMARY = "summary", COLOC_BATCH_SIZE = "batch_size", COLOC_SEQ_LEN = "seq_len",
  COLOC_OPTIMIZER = "optimizer", COLOC_PRECISION = "precision", COLOC_POLICY = "policy",
  COLOC_KIND = "kind", COLOC_AUTO = "auto", COLOC_SLOT = "slot",
  COLOC_MAX_SLOWDOWN = "max_slowdown",
}
-- PyTorch's allocator: the second is the name up to 2.8, which later ones still read.
local ALLOCATOR = { "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF" }
local ALLOCATOR_MAX = 512 -- bytes; a longer one is no honest value
local OPTION_ORDER = {
  "summary", "batch_size", "seq_len", "optimizer", "precision", "policy", "kind", "auto",
  "slot", "max_slowdown",
}
local SCRIPT_MAX = 65536 -- bytes of a script and its arguments; a longer one is not forwarded
-- The order of writing; the memory last, because an unset one cannot be put back.
local ORDER = {
  "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_bind",
  "one_task_per_sharing", "cpus_per_tres", "mem_per_tres", "num_tasks", "cpus_per_task",
  "min_nodes", "max_nodes", "features", "req_nodes", "begin_time", "extra", "requeue",
  "admin_comment", "min_mem_per_node",
}

local ACCOUNT_PAUSE_S = 60
local COMMENT_SEEN = 1024 -- bytes of AdminComment that colocd surely sees

-- Calls visit(name, count) for each gres in a tres string ("gres/gpu:a100:2,gres:shard:3",
-- "cpu=3", "shard"), whatever the release's spelling; a missing count is 1.
local function each_gres(text, visit)
  for item in text:lower():gmatch("[^,]+") do
    local rest = item:gsub("^%s+", ""):gsub("^gres[:/]", "")
    local name = rest:match("^[^:/=%s]+")
    local last = rest:match("[:=]([^:=]*)%s*$")
    if name then visit(name, last and tonumber(last:match("^%d+")) or 1) end
  end
end

--- Does the request name shards? Every submission pays for this: search before reading.
function job.asks_shards(job_desc)
  local found = false
  for i = 1, #TRES do
    local text = job_desc[TRES[i]]
    if text and text:lower():find("shard", 1, true) then
      each_gres(text, function(name) found = found or name == "shard" end)
    end
  end
  return found
end

--- GPUs named in the request, added up over its fields; nil where none is named (not 0).
function job.asks_gpus(job_desc)
  local gpus
  for _, field in ipairs(TRES) do
    each_gres(job_desc[field] or "", function(name, count)
      if name == "gpu" then gpus = (gpus or 0) + count end
    end)
  end
  return gpus
end

--- Gives GPUs of no type this one, in every field; the rest stays as it is written.
function job.name_type(job_desc, kind)
  for _, field in ipairs(TRES) do
    local text = job_desc[field] or ""
    local typed = text:gsub("[^,]+", function(item)
      local name, count = item:match("^(%s*gres[:/]gpu)([:=]%d+%s*)$")
      if not name then name, count = item:match("^(%s*gres[:/]gpu)%s*$"), ":1" end
      return name and name .. ":" .. kind .. count or item
    end)
    if typed ~= text then job_desc[field] = typed end
  end
end

--- Does a modification touch the request for generic resources at all?
function job.edits_gres(job_desc)
  for _, field in ipairs(TRES) do
    if job_desc[field] ~= nil then return true end
  end
  return false
end

-- "gres:" or "gres/", as this release spells it: what the binding itself writes. tres_per_node
-- is put back; in a modification call it only where that field is set.
local prefix
local function gres_prefix(job_desc)
  if not prefix then
    local before = job_desc.tres_per_node or ""
    job_desc.gres = "gpu:1"
    local written = job_desc.tres_per_node or ""
    job_desc.tres_per_node = before
    prefix = written:match("^(gres[:/])gpu:1$") or "gres/"
  end
  return prefix
end

--- Does the job hold shards per task, and does the modification ask for a GPU per task instead?
function job.shares_per_task(job_rec)
  local found = false
  each_gres(job_rec.tres_per_task or "", function(name) found = found or name == "shard" end)
  return found
end

function job.edits_to_gpu_per_task(job_desc)
  for _, field in ipairs(TRES) do
    local text = job_desc[field]
    if field ~= "tres_per_task" and text and text ~= "" then return false end
  end
  local gpus, others = 0, 0
  each_gres(job_desc.tres_per_task or "", function(name, count)
    if name == "gpu" then gpus = gpus + count elseif name ~= "cpu" then others = others + 1 end
  end)
  return gpus == 1 and others == 0
end

--- Does the modification ask for one whole GPU and nothing else? Never on releases that write
--- gres:gpu (22.05): there a GPU can be whole and shared at once, so one that is really whole is
--- asked for as all its shards, by colocd alone.
function job.edits_to_whole_gpu(job_desc)
  for _, field in ipairs(TRES) do
    local text = job_desc[field]
    if field ~= "tres_per_node" and text and text ~= "" then return false end
  end
  local wanted = job_desc.tres_per_node
  if not wanted or wanted == "" or gres_prefix(job_desc) ~= "gres/" then return false end
  local gpus, others = 0, 0
  each_gres(wanted, function(name, count)
    if name == "gpu" then gpus = gpus + count else others = others + 1 end
  end)
  return gpus == 1 and others == 0
end

--- What the SPANK plugin forwarded ({version, summary, ...}), or nil: not our job.
function job.options(job_desc)
  local env = job_desc.spank_job_env -- indexed from 0; nil when empty
  if not env then return nil end
  local found
  for i = 0, (job_desc.spank_job_env_size or 0) - 1 do
    local entry = env[i]
    if entry and entry:sub(1, 6) == "COLOC_" then
      local name, value = entry:match("^([A-Z_]+)=(.*)$")
      found = found or {}
      if name == "COLOC_V" then
        found.version = value
      elseif name and OPTIONS[name] and value ~= "" then
        found[OPTIONS[name]] = value
      end
    end
  end
  return found
end

local function environment_names(job_desc)
  local names = {}
  if job_desc.script ~= nil then
    local env = job_desc.environment
    for _, name in ipairs(ENVIRONMENT) do
      if env[name] ~= nil then names[#names + 1] = name end
    end
  end
  return { list = names }
end

-- What sbatch's environment says of PyTorch's allocator, nil where it says nothing.
local function allocator_options(job_desc)
  if job_desc.script == nil then return nil end
  for _, name in ipairs(ALLOCATOR) do
    local value = job_desc.environment[name]
    if value ~= nil and value ~= "" then return #value <= ALLOCATOR_MAX and value or nil end
  end
end

-- --coloc=auto: what colocd knows a script by, its text and its arguments (without its path).
local function script_of(job_desc, options)
  local text = options.auto and job_desc.script
  if not text then return nil, nil end
  local given, size = {}, #text
  local argv = job_desc.argv or {}
  for i = 0, job_desc.argc or 0 do
    if argv[i] then
      given[#given + 1] = argv[i]
      size = size + #argv[i]
    end
  end
  if size > SCRIPT_MAX then return nil, nil end
  table.remove(given, 1)
  return text, { list = given }
end

-- The user's account where the job names none. It comes from slurmctld's cache of slurmdbd in
-- 0.01 ms; but a slurmctld that never had one asks slurmdbd at each read, and a dead slurmdbd cost
-- 2 s (24.11): after one such read no other for a while. os.time: whole seconds will do.
local no_account_read_until = 0
local function default_account(job_desc)
  local start = os.time()
  if (job_desc.account or "") ~= "" or start < no_account_read_until then return nil end
  local found = job_desc.default_account
  local stop = os.time()
  if stop - start >= 2 then no_account_read_until = stop + ACCOUNT_PAUSE_S end
  return found ~= "" and found or nil
end

--- The fields of a submit request as {entries = {{key, value}, ...}}; unset ones are absent.
function job.request(job_desc, options, loaded_ms)
  local entries = { { "v", 1 }, { "op", "submit" }, { "flat", true } }
  local function add(key, value) entries[#entries + 1] = { key, value } end
  add("loaded_ms", loaded_ms)
  add("uid", job_desc.user_id)
  add("gid", job_desc.group_id)
  for _, field in ipairs(STRINGS) do
    local value = job_desc[field]
    if value ~= "" then add(field, value) end
  end
  add("default_account", default_account(job_desc))
  for _, entry in ipairs(NUMBERS) do
    local field, unset = entry[1], entry[2]
    local value = job_desc[field]
    -- 4294967295 is INFINITE: a time limit that the user set to UNLIMITED.
    local infinite = field == "time_limit" and value == 4294967295
    if value and (value < unset or infinite) then add(field, value) end
  end
  if job_desc.array_inx ~= "" then add("array", job_desc.array_inx) end
  add("het", (job_desc.het_job_offset or 4294967294) < 4294967294)
  add("exclusive_node", job_desc.shared == 0)
  add("batch", job_desc.script ~= nil)
  add("env", environment_names(job_desc))
  local given = {}
  for _, name in ipairs(OPTION_ORDER) do given[#given + 1] = { name, options[name] } end
  given[#given + 1] = { "alloc_conf", allocator_options(job_desc) }
  local script, arguments = script_of(job_desc, options)
  given[#given + 1] = { "script", script }
  given[#given + 1] = { "arguments", arguments }
  add("coloc", { entries = given })
  return { entries = entries }
end

--- A mark beside the site's own comment, whole and byte for byte. colocd reads AdminComment by
--- squeue in a column of 1030 characters, so before a long one the mark stands in front.
function job.comment_with(job_desc, mark)
  local theirs = job_desc.admin_comment or ""
  if theirs == "" then return mark end
  if #theirs + #mark + 2 <= COMMENT_SEEN then return theirs .. "; " .. mark end
  return mark .. "; " .. theirs
end

local function put(job_desc, field, value)
  job_desc[field] = value
  local now = job_desc[field]
  if now == nil then now = "" end -- a cleared string reads nil
  if now ~= value then error(field .. " did not take " .. tostring(value)) end
end

local function empty_environment(job_desc, names, undo)
  if job_desc.script == nil then return end
  for _, name in ipairs(names) do
    local before = job_desc.environment[name]
    if before ~= nil then
      undo[#undo + 1] = function() job_desc.environment[name] = before end
      job_desc.environment[name] = ""
    end
  end
end

-- What the job is told by its environment. A name that was absent cannot be removed again: "".
local function give_environment(job_desc, given, undo)
  if job_desc.script == nil then return end
  for name, value in pairs(given) do
    local before = job_desc.environment[name] or ""
    undo[#undo + 1] = function() job_desc.environment[name] = before end
    job_desc.environment[name] = value
  end
end

local function has_bit(flags, bit) return math.floor(flags / bit) % 2 == 1 end

-- --gres-flags=one-task-per-sharing: a bit of bitflags that slurm names where Slurm knows it. The
-- job is on one node then, so --spread-job goes: beside tres_per_task it ends slurmctld (24.11.5).
local function one_task_per_sharing(job_desc, undo)
  local bit, spread, before =
    slurm.GRES_ONE_TASK_PER_SHARING, slurm.SPREAD_JOB, job_desc.bitflags
  if not bit or not before then error("this Slurm has no one-task-per-sharing") end
  local flags = has_bit(before, bit) and before or before + bit
  if spread and has_bit(flags, spread) then flags = flags - spread end
  if flags == before then return end
  undo[#undo + 1] = function() job_desc.bitflags = before end
  put(job_desc, "bitflags", flags)
end

local function write_fields(job_desc, set, undo)
  for _, field in ipairs(ORDER) do
    local value = set[field]
    if field == "one_task_per_sharing" then
      if value then one_task_per_sharing(job_desc, undo) end
    elseif value ~= nil then
      local before, per_cpu = job_desc[field], job_desc.min_mem_per_cpu
      -- A start time, and a constraint on Extra, that the user asked for stays.
      if field == "extra" and (before or "") ~= "" then value = before end
      if field == "begin_time" and (before or 0) > os.time() then value = before end
      undo[#undo + 1] = function()
        if before ~= nil then
          job_desc[field] = before
        elseif type(value) == "string" then
          job_desc[field] = ""
        elseif per_cpu ~= nil then
          job_desc.min_mem_per_cpu = per_cpu
        end
      end
      if value ~= "" and field:find("tres", 1, true) then
        value = ("," .. value):gsub(",gres[:/]", "," .. gres_prefix(job_desc)):sub(2)
      end
      put(job_desc, field, value)
    end
  end
end

--- Set the fields, empty the names (env) of the job's environment and set others there (given): all
--- of it and true, or none of it, nil and the error's text.
function job.apply(job_desc, set, env, given)
  local undo = {}
  local ok, problem = pcall(function()
    empty_environment(job_desc, env, undo)
    give_environment(job_desc, given or {}, undo)
    write_fields(job_desc, set, undo)
  end)
  if ok then return true end
  for i = #undo, 1, -1 do pcall(undo[i]) end
  return nil, tostring(problem)
end

return job
