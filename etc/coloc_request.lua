-- SPDX-License-Identifier: Apache-2.0
--[[
coloc_request.lua: what a user sent, for coloc.lua: the options of the SPANK plugin and the request
to colocd.

Every string here is the user's, and slurmctld takes tens of megabytes of it. So the length of each
one is checked (#s costs nothing) before any work on it, and the numbers of entries before a table
is read: the binding copies a field whole each time that it is read, and slurmctld waits meanwhile.
An option that is too long counts as not given; a field that is too long costs its job a whole GPU.
What fields read as in slurmctld: see coloc_job.lua.
]]

local request = {}

request.COMMENT_MAX = 524288 -- bytes of admin_comment that are read; 300 KB of a site were seen
local ENTRIES_MAX = 256 -- variables of SPANK plugins, ours and others'
local OURS_MAX = 32 -- of them that begin with COLOC_
local NAME_MAX = 32 -- bytes of such a name and its "="
local VALUE_MAX = 4096 -- bytes of an environment variable that sbatch sets
local ALLOCATOR_MAX = 512 -- bytes; a longer one is no honest value
local SCRIPT_MAX = 65536 -- bytes of a script and its arguments; a longer one is not forwarded
local CONTROL_PERCENT_MAX = 5 -- of control characters; beyond, it is no text (spank/summary_file.c)
local ARGUMENTS_MAX = 4096 -- arguments, as colocd takes them

-- The most bytes of each string field. slurmctld itself takes 1024 of most, later than this hook,
-- and colocd 16384. admin_comment is not sent: colocd gives the mark only, coloc_job.lua joins the
-- two.
local STRINGS = {
  { "account", 4096 }, { "partition", 4096 }, { "qos", 4096 }, { "features", 4096 },
  { "reservation", 4096 }, { "req_nodes", 16384 }, { "exc_nodes", 16384 },
  { "tres_per_node", 1024 }, { "tres_per_job", 1024 }, { "tres_per_task", 1024 },
  { "tres_per_socket", 1024 }, { "tres_freq", 4096 }, { "tres_bind", 4096 },
  { "cpus_per_tres", 4096 }, { "mem_per_tres", 4096 },
}
local ARRAY_MAX = 16384
local JOB_NAME_MAX = 128 -- bytes of --job-name; a longer one is not shown
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
-- PyTorch's allocator: the second is the name up to 2.8, which later ones still read.
local ALLOCATOR = { "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF" }
local OPTIONS = {
  COLOC_V = "version", COLOC_SUMMARY = "summary", COLOC_TICKET = "ticket",
  COLOC_TEXT_SHA256 = "text_sha256", COLOC_BATCH_SIZE = "batch_size", COLOC_SEQ_LEN = "seq_len",
  COLOC_INPUT = "input", COLOC_TRAINING = "training",
  COLOC_OPTIMIZER = "optimizer", COLOC_PRECISION = "precision", COLOC_POLICY = "policy",
  COLOC_KIND = "kind", COLOC_AUTO = "auto", COLOC_SLOT = "slot",
  COLOC_MEMORY = "memory_mib",
  COLOC_MAX_SLOWDOWN = "max_slowdown",
}
local OPTION_MAX = 64 -- bytes; the longest of the SPANK plugin is the hash of a text
local SUMMARY_MAX = 65536 -- bytes; COLOC_FORWARD_MAX of spank/coloc.h
-- What the SPANK plugin makes of a text. What is of another form is not the plugin's, and not worth
-- the work as JSON: {pattern, what it is not}.
local FORMS = {
  summary = { "^[A-Za-z0-9+/=]*$", "base64" },
  ticket = { "^" .. ("[0-9a-f]"):rep(32) .. "$", "ticket" },
  text_sha256 = { "^" .. ("[0-9a-f]"):rep(64) .. "$", "hash" },
}
local OPTION_ORDER = {
  "summary", "ticket", "text_sha256", "batch_size", "seq_len", "input", "optimizer", "precision",
  "training", "policy", "kind", "auto", "memory_mib", "slot", "max_slowdown",
}
local ACCOUNT_PAUSE_S = 60

local function longer(name, most) return ("%s is longer than %d bytes"):format(name, most) end

-- One entry "COLOC_NAME=value" into options; a line into ignored where it is too long.
local function read_option(entry, options, ignored)
  local name = entry:sub(1, NAME_MAX):match("^([A-Z0-9_]+)=")
  local option = name and OPTIONS[name]
  if not option then return end
  local most = option == "summary" and SUMMARY_MAX or OPTION_MAX
  local size = #entry - #name - 1
  if size > most then
    ignored[#ignored + 1] = longer(name, most) .. ": ignored"
  elseif size > 0 or option == "version" then
    options[option] = entry:sub(#name + 2)
    local form = FORMS[option]
    if form and not options[option]:find(form[1]) then
      options[option] = nil
      ignored[#ignored + 1] = ("%s is no %s: ignored"):format(name, form[2])
    end
  end
end

--- What the SPANK plugin forwarded ({version, summary, ...}), or nil: not our job. Then lines for
--- the user about what is too long and counts as not given.
function request.options(job_desc)
  local size = job_desc.spank_job_env_size or 0
  if size > ENTRIES_MAX then
    return nil, { ("SPANK plugins sent more than %d variables: --coloc is not looked at; the job"
      .. " goes as submitted"):format(ENTRIES_MAX) }
  end
  local env = job_desc.spank_job_env -- indexed from 0; nil when empty
  local ours, options, ignored = 0, {}, {}
  for i = 0, env and size - 1 or -1 do
    local entry = env[i]
    if entry and entry:sub(1, 6) == "COLOC_" and ours < OURS_MAX then
      ours = ours + 1
      read_option(entry, options, ignored)
    end
  end
  return ours > 0 and options or nil, ignored
end

-- The names of Slurm's that are set, and what sbatch's environment says of PyTorch's allocator;
-- nil and why not where a value is too long.
local function of_environment(job_desc, batch, ignored)
  local names = {}
  if not batch then return names end
  local env = job_desc.environment
  for _, name in ipairs(ENVIRONMENT) do
    local value = env[name]
    if value ~= nil then
      if #value > VALUE_MAX then return nil, longer(name, VALUE_MAX) end
      names[#names + 1] = name
    end
  end
  for _, name in ipairs(ALLOCATOR) do
    local value = env[name]
    if value ~= nil and value ~= "" then
      if #value <= ALLOCATOR_MAX then return names, value end
      ignored[#ignored + 1] = longer(name, ALLOCATOR_MAX) .. ": ignored"
      break
    end
  end
  return names
end

-- --coloc=auto: what colocd knows a script by, its text and its arguments (without its path).
local function script_of(job_desc, text)
  local argc = job_desc.argc or 0
  if #text > SCRIPT_MAX or argc > ARGUMENTS_MAX + 1 then return nil, nil end
  local given, size = {}, #text
  local argv = job_desc.argv or {}
  for i = 0, argc do
    local argument = argv[i]
    if argument then
      size = size + #argument
      if size > SCRIPT_MAX then return nil, nil end
      given[#given + 1] = argument
    end
  end
  table.remove(given, 1)
  local _, control = (text .. table.concat(given)):gsub("[%z\1-\7\11\14-\26\28-\31\127]", "")
  if control * 100 > size * CONTROL_PERCENT_MAX then return nil, nil end
  return text, { list = given }
end

-- The user's account where the job names none. It comes from slurmctld's cache of slurmdbd in
-- 0.01 ms; but a slurmctld that never had one asks slurmdbd at each read, and a dead slurmdbd cost
-- 2 s (24.11): after one such read no other for a while. os.time: whole seconds will do.
local no_account_read_until = 0
local function default_account(job_desc, account)
  local start = os.time()
  if (account or "") ~= "" or start < no_account_read_until then return nil end
  local found = job_desc.default_account
  local stop = os.time()
  if stop - start >= 2 then no_account_read_until = stop + ACCOUNT_PAUSE_S end
  return found ~= "" and found or nil
end

-- The strings of job_desc as {{key, value}, ...}, or nil and why not.
local function strings_of(job_desc)
  if #(job_desc.admin_comment or "") > request.COMMENT_MAX then
    return nil, longer("admin_comment", request.COMMENT_MAX)
  end
  local entries, account = {}, nil
  for _, field in ipairs(STRINGS) do
    local name, most = field[1], field[2]
    local value = job_desc[name]
    if value and #value > most then return nil, longer(name, most) end
    if value ~= "" then entries[#entries + 1] = { name, value } end
    if name == "account" then account = value end
  end
  entries[#entries + 1] = { "default_account", default_account(job_desc, account) }
  return entries
end

local function add_numbers(job_desc, entries)
  for _, entry in ipairs(NUMBERS) do
    local field, unset = entry[1], entry[2]
    local value = job_desc[field]
    -- 4294967295 is INFINITE: a time limit that the user set to UNLIMITED.
    local infinite = field == "time_limit" and value == 4294967295
    if value and (value < unset or infinite) then entries[#entries + 1] = { field, value } end
  end
end

--- The fields of a submit request as {entries = {{key, value}, ...}}; unset ones are absent. Or nil
--- and the field that is too long. Lines about what counts as not given go into ignored.
function request.fields(job_desc, options, loaded_ms, ignored)
  local entries, why = strings_of(job_desc)
  if not entries then return nil, why end
  local array = job_desc.array_inx
  if array and #array > ARRAY_MAX then return nil, longer("array_inx", ARRAY_MAX) end
  local text = job_desc.script -- read once: it may be large
  local names, allocator = of_environment(job_desc, text ~= nil, ignored)
  if not names then return nil, allocator end
  local function add(key, value) entries[#entries + 1] = { key, value } end
  add("v", 1)
  add("op", "submit")
  add("flat", true)
  if loaded_ms then add("loaded_monotonic_ms", loaded_ms) end
  add("uid", job_desc.user_id)
  add("gid", job_desc.group_id)
  add_numbers(job_desc, entries)
  if array ~= "" then add("array", array) end
  local job_name = job_desc.name
  if job_name and job_name ~= "" and #job_name <= JOB_NAME_MAX then add("name", job_name) end
  add("het", (job_desc.het_job_offset or 4294967294) < 4294967294)
  add("exclusive_node", job_desc.shared == 0)
  add("batch", text ~= nil)
  add("env", { list = names })
  local given = {}
  for _, name in ipairs(OPTION_ORDER) do given[#given + 1] = { name, options[name] } end
  given[#given + 1] = { "alloc_conf", allocator }
  if options.auto and text then
    local script, arguments = script_of(job_desc, text)
    given[#given + 1] = { "script", script }
    given[#given + 1] = { "arguments", arguments }
  end
  add("coloc", { entries = given })
  return { entries = entries }
end

return request
