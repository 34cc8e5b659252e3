-- SPDX-License-Identifier: Apache-2.0
--[[
harness.lua SCENARIO: runs etc/coloc.lua as slurmctld would. The slurm table and job_desc here do
what the real ones were seen to do on 22.05.8 and 24.11.5: nil assigned raises, "" clears, an
unknown field is logged and ignored, gres adds the release's prefix, log_user is a string.format.
SCENARIO is a Lua file that returns a table; the results go to stdout, one per line,
"step<TAB>what<TAB>name<TAB>hex of the value".
]]

local scenario = dofile(arg[1])
local step = 0

local function emit(what, name, value)
  local hex = tostring(value):gsub(".", function(c) return ("%02x"):format(c:byte()) end)
  print(("%d\t%s\t%s\t%s"):format(step, what, name, hex))
end

local function logger(what)
  return function(format, ...) emit(what, "-", string.format(format, ...)) end
end

slurm = {
  SUCCESS = 0, ERROR = -1, ESLURM_ACCESS_DENIED = 2002,
  log_info = logger("info"), log_error = logger("error"), log_user = logger("user"),
  GRES_ONE_TASK_PER_SHARING = scenario.release ~= "22.05" and 2 ^ 38 or nil,
  SPREAD_JOB = 2 ^ 8,
}

-- Strings and numbers of the real binding, with what an unset one reads; false: reads nil.
local FIELDS = {
  account = false, partition = false, qos = false, features = false, admin_comment = false,
  tres_per_node = false, tres_per_job = false, tres_per_task = false, tres_per_socket = false,
  tres_bind = false, tres_freq = false, default_account = false, reservation = false,
  extra = false, req_nodes = false, exc_nodes = false, cpus_per_tres = false, mem_per_tres = false,
  array_inx = false,
  argv = false, argc = 0,
  script = false, spank_job_env = false, min_mem_per_node = false, min_mem_per_cpu = false,
  time_limit = 4294967294, num_tasks = 4294967294, ntasks_per_node = 65534,
  min_nodes = 4294967294, max_nodes = 4294967294, min_cpus = 1, cpus_per_task = 65534,
  ntasks_per_tres = 65534, requeue = 65534, shared = 65534, het_job_offset = 4294967294,
  spank_job_env_size = 0, begin_time = 0, bitflags = 503332864,
  user_id = 1000, group_id = 1000,
}
local NUMERIC = { min_mem_per_node = true, min_mem_per_cpu = true }

local function check_string(value)
  if type(value) ~= "string" then error("bad argument #3 (string expected)", 0) end
end

local function environment(values)
  return setmetatable({}, {
    __index = function(_, name) return values[name] end,
    __newindex = function(_, name, value)
      check_string(value)
      values[name] = value
    end,
  })
end

-- fails[field] = true: assigning anything to that field raises, once `before` has been written.
local function job_table(given, release, fails)
  local values = {}
  for name, default in pairs(FIELDS) do values[name] = default or nil end
  for name, value in pairs(given) do values[name] = value end
  local env = given.environment or {}
  values.environment = nil
  local proxy = setmetatable({}, {
    __index = function(_, name)
      if name == "environment" then return environment(env) end
      if name == "gres" then return values.tres_per_node end
      if name == "default_account" and values.slow_account_s then -- slurmdbd is dead
        require("posix.time").nanosleep({ tv_sec = values.slow_account_s, tv_nsec = 0 })
      end
      return values[name]
    end,
    __newindex = function(_, name, value)
      if fails and fails[name] then error("made to fail: " .. name, 0) end
      if name == "gres" then
        check_string(value)
        name, value = "tres_per_node", (release == "22.05" and "gres:" or "gres/") .. value
      end
      if FIELDS[name] == nil then
        emit("error", "-", "_set_job_field: unrecognized field: " .. tostring(name))
      elseif FIELDS[name] or NUMERIC[name] then
        if type(value) ~= "number" then error("bad argument #3 (number expected)", 0) end
        if name == "min_mem_per_node" then values.min_mem_per_cpu = nil end
        if name == "min_mem_per_cpu" then values.min_mem_per_node = nil end
        values[name] = value
      else
        check_string(value)
        values[name] = value ~= "" and value or nil
      end
    end,
  })
  return proxy, values, env
end

local ok, coloc = pcall(dofile, scenario.lua .. "/coloc.lua")
if not ok then error(coloc, 0) end
coloc.setup(scenario.setup)

for i, s in ipairs(scenario.steps) do
  step = i
  if s.op == "sleep" then
    require("posix.time").nanosleep({ tv_sec = math.floor(s.s), tv_nsec = s.s % 1 * 1e9 })
  else
    local proxy, values, env = job_table(s.job or {}, scenario.release, s.fails)
    local clock = require("posix.time")
    local a = clock.clock_gettime(clock.CLOCK_MONOTONIC)
    local called, rc
    if s.op == "submit" then
      called, rc = pcall(coloc.submit, proxy, {}, s.uid or 1000)
    else
      called, rc = pcall(coloc.modify, proxy, s.rec or {}, {}, s.uid or 1000)
    end
    local b = clock.clock_gettime(clock.CLOCK_MONOTONIC)
    emit("called", "-", called)
    emit("rc", "-", rc)
    emit("ms", "-", (b.tv_sec - a.tv_sec) * 1e3 + (b.tv_nsec - a.tv_nsec) / 1e6)
    for name, value in pairs(values) do
      if type(value) ~= "table" then emit("field", name, value) end
    end
    for name, value in pairs(env) do emit("env", name, value) end
  end
end
