-- SPDX-License-Identifier: Apache-2.0
--[[
harness.lua SCENARIO: runs etc/coloc.lua as slurmctld would. The slurm table and job_desc here do
what the real ones were seen to do on 22.05.8 and 24.11.5: nil assigned raises, "" clears, an
unknown field is logged and ignored, gres adds the release's prefix, log_user is a string.format.
SCENARIO is a Lua file that returns a table; the results go to stdout, one per line,
"step<TAB>what<TAB>name<TAB>hex of the value"; of a value beyond 400 KB its length only ("long").

With scenario.measure each call's work is counted, not timed: the interpreter's instructions, the
KiB that were allocated, the bytes that were read from job_desc, and the longest string that a
string function worked on.
]]

local scenario = dofile(arg[1])
local step = 0
local LONG = 400000

-- Before they are wrapped, so that the harness's own work is not counted.
local format, gsub = string.format, string.gsub

local lines = {} -- written after the call
local function emit(what, name, value) lines[#lines + 1] = { what, name, tostring(value) } end

local function flush()
  for _, line in ipairs(lines) do
    local what, name, value = line[1], line[2], line[3]
    if #value > LONG then what, value = "long", tostring(#value) end
    local hex = gsub(value, ".", function(c) return format("%02x", c:byte()) end)
    print(format("%d\t%s\t%s\t%s", step, what, name, hex))
  end
  lines = {}
end

local function logger(what)
  return function(text, ...) emit(what, "-", format(text, ...)) end
end

local longest, read = 0, 0

-- luacheck: push ignore 122 (fields of the standard library are set)
-- All that goes through a string function is work, but of sub: that costs what it returns.
local function wrap_strings()
  for _, name in ipairs({ "byte", "find", "format", "gmatch", "gsub", "lower", "match", "rep",
    "upper" }) do
    local real = string[name]
    string[name] = function(a, b, ...)
      if #a > longest then longest = #a end
      if type(b) == "string" and #b > longest then longest = #b end
      return real(a, b, ...)
    end
  end
  local sub, concat = string.sub, table.concat
  string.sub = function(...)
    local found = sub(...)
    if #found > longest then longest = #found end
    return found
  end
  table.concat = function(...)
    local found = concat(...)
    if #found > longest then longest = #found end
    return found
  end
end
if scenario.measure then wrap_strings() end
-- luacheck: pop

local STEP = 10 -- instructions between two counts
local function measured(call)
  local instructions = 0
  longest, read = 0, 0
  collectgarbage()
  collectgarbage("stop")
  local before = collectgarbage("count")
  debug.sethook(function() instructions = instructions + STEP end, "", STEP)
  local called, rc = call()
  debug.sethook()
  emit("work", "instructions", instructions)
  emit("work", "kib", math.ceil(collectgarbage("count") - before))
  emit("work", "read", read)
  emit("work", "longest", longest)
  collectgarbage("restart")
  return called, rc
end

-- Bytes that the real binding copies where a field is read.
local function bytes_of(value)
  if type(value) == "string" then return #value end
  if type(value) ~= "table" then return 0 end
  local sum = 0
  for _, one in pairs(value) do sum = sum + bytes_of(one) end
  return sum
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
  array_inx = false, name = false,
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
    __index = function(_, name)
      read = read + bytes_of(values[name])
      return values[name]
    end,
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
  local sizes = {}
  for name, value in pairs(values) do sizes[name] = bytes_of(value) end
  local proxy = setmetatable({}, {
    __index = function(_, name)
      if name == "environment" then return environment(env) end
      if name == "gres" then return values.tres_per_node end
      if name == "default_account" and values.slow_account_s then -- slurmdbd is dead
        require("posix.time").nanosleep({ tv_sec = values.slow_account_s, tv_nsec = 0 })
      end
      read = read + (sizes[name] or 0)
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
        sizes[name] = #value
      end
    end,
  })
  return proxy, values, env
end

local ok, coloc = pcall(dofile, scenario.lua .. "/coloc.lua")
if not ok then error(coloc, 0) end
coloc.setup(scenario.setup)
flush()

for i, s in ipairs(scenario.steps) do
  step = i
  if s.op == "sleep" then
    require("posix.time").nanosleep({ tv_sec = math.floor(s.s), tv_nsec = s.s % 1 * 1e9 })
  else
    local proxy, values, env = job_table(s.job or {}, scenario.release, s.fails)
    local clock = require("posix.time")
    local a = clock.clock_gettime(clock.CLOCK_MONOTONIC)
    local hook, last = coloc.modify, { s.rec or {}, {}, s.uid or 1000 }
    if s.op == "submit" then hook, last = coloc.submit, { {}, s.uid or 1000 } end
    local function call() return pcall(hook, proxy, last[1], last[2], last[3]) end
    local called, rc
    if scenario.measure then called, rc = measured(call) else called, rc = call() end
    local b = clock.clock_gettime(clock.CLOCK_MONOTONIC)
    emit("called", "-", called)
    emit("rc", "-", rc)
    emit("ms", "-", (b.tv_sec - a.tv_sec) * 1e3 + (b.tv_nsec - a.tv_nsec) / 1e6)
    for name, value in pairs(values) do
      if type(value) ~= "table" then emit("field", name, value) end
    end
    for name, value in pairs(env) do emit("env", name, value) end
    flush()
  end
end
