-- SPDX-License-Identifier: Apache-2.0
--[[
coloc_job.lua: what a job asks of GPUs in slurmctld's job_desc, and changes to it, all or nothing.
What else a user sent is read by coloc_request.lua.

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
local TRES_MAX = 1024 -- bytes of each; slurmctld itself takes no more, later than this hook
local ITEMS_MAX = 64 -- resources named in each
local ITEM_MIN = 2 -- bytes of one and its comma
-- The order of writing; the memory last, because an unset one cannot be put back.
local ORDER = {
  "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_bind",
  "one_task_per_sharing", "cpus_per_tres", "mem_per_tres", "num_tasks", "cpus_per_task",
  "min_nodes", "max_nodes", "features", "req_nodes", "begin_time", "extra", "requeue",
  "admin_comment", "min_mem_per_node",
}

local COMMENT_SEEN = 1024 -- bytes of AdminComment that colocd surely sees
local COMMENT_READ = 4096 -- bytes of it in which a mark is looked for

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

-- Is there more in a tres string than is looked at? "longer than ..." or nil.
local function beyond(text)
  if #text > TRES_MAX then return ("is longer than %d bytes"):format(TRES_MAX) end
  if #text <= ITEM_MIN * ITEMS_MAX then return nil end
  local _, commas = text:gsub(",", ",")
  return commas >= ITEMS_MAX and ("names more than %d resources"):format(ITEMS_MAX) or nil
end

--- Why the request for resources is not looked at: one line, or nil. Every submission pays for
--- this. It comes before any other look at these fields, and stops at the first that is too long.
function job.too_long(job_desc)
  for i = 1, #TRES do
    local text = job_desc[TRES[i]]
    local why = text and beyond(text)
    if why then return TRES[i] .. " " .. why end
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
  local found, text = false, job_rec.tres_per_task or ""
  each_gres(beyond(text) and "" or text, function(name) found = found or name == "shard" end)
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

--- A mark beside the site's own comment, whole and byte for byte. colocd reads AdminComment by
--- squeue in a column of 1030 characters, so before a long one the mark stands in front. nil: their
--- comment is longer than `most` bytes and stays as it is, without a mark.
function job.comment_with(job_desc, mark, most)
  local theirs = job_desc.admin_comment or ""
  if #theirs > most then return nil end
  if theirs == "" then return mark end
  if #theirs + #mark + 2 <= COMMENT_SEEN then return theirs .. "; " .. mark end
  return mark .. "; " .. theirs
end

--- The action of a job's last mark, or nil. AdminComment is trusted, only the super user may change
--- it; a mark stands where colocd sees it, so the rest of a long comment is not read.
function job.marked_action(job_rec)
  local action
  local seen = (job_rec.admin_comment or ""):sub(1, COMMENT_READ)
  for found in seen:gmatch("coloc:1:%x+:(%a+):") do action = found end
  return action
end

local function put(job_desc, field, value)
  job_desc[field] = value
  local now = job_desc[field]
  if now == nil then now = "" end -- a cleared string reads nil
  if now ~= value then error(field .. " did not take " .. tostring(value)) end
end

-- Empties names, and tells the job by others (given). A name that was absent cannot be removed
-- again: "". The script is read only where there is something to change: it may be large.
local function change_environment(job_desc, names, given, undo)
  if next(names) == nil and next(given) == nil or job_desc.script == nil then return end
  for _, name in ipairs(names) do
    local before = job_desc.environment[name]
    if before ~= nil then
      undo[#undo + 1] = function() job_desc.environment[name] = before end
      job_desc.environment[name] = ""
    end
  end
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
    elseif value ~= nil and (field ~= "extra" or (job_desc.extra or "") == "") then
      -- (a constraint on Extra that the user asked for stays)
      local before, per_cpu = job_desc[field], job_desc.min_mem_per_cpu
      -- A start time that the user asked for stays.
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
    change_environment(job_desc, env, given or {}, undo)
    write_fields(job_desc, set, undo)
  end)
  if ok then return true end
  for i = #undo, 1, -1 do pcall(undo[i]) end
  return nil, tostring(problem)
end

return job
