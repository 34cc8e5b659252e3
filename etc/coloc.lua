-- SPDX-License-Identifier: Apache-2.0
--[[
coloc.lua: slurm-coloc in slurmctld's job_submit/lua plugin, as one function that a site's own
job_submit.lua calls last. Longer than our other files because an admin copies one file.

    local coloc = dofile("/etc/slurm/coloc.lua")
    coloc.setup{socket = "/run/slurm-coloc/colocd.sock"}
    return coloc.submit(job_desc, part_list, submit_uid)

The hook runs inside slurmctld, one copy at a time and under its locks: what it waits for, every
submission waits for. So a job without --coloc costs a look at its request and no call; a --coloc
job costs one request to colocd on a local socket, bounded by a deadline, and a daemon that did
not answer is left alone for a while (the breaker). The Lua state, and with it the breaker, lives
until slurmctld restarts or job_submit.lua's mtime changes; a new coloc.lua is read only then.

Whatever fails, the submission goes on: where --coloc was asked for, on a whole GPU.

Seen on Slurm 22.05.8 and 24.11.5 (Lua 5.1 in both, lua-posix 33.4 and 36.3):
* unset numbers read 65534, 4294967294 or (pn_min_memory) about 1.8e19; unset strings read nil;
  min_mem_per_node and min_mem_per_cpu read nil where the other or none was given;
* assigning nil raises; "" clears a string; 65534 and 4294967294 assigned make a number unset
  again, but an unset memory cannot be put back (2^64-2 is no double): hence ORDER below;
* tres_* must carry the release's own spelling, gres:gpu:1 (22.05) or gres/gpu:1 (24.11), the
  other one is refused; assigning job_desc.gres = "gpu:1" adds the right prefix on both;
* there is no open_mode in the binding: appending the log needs JobFileAppend=1 in slurm.conf;
* 24.11 sends -c 3 also as tres_per_task "cpu=3", and --gpus-per-task also as tres_bind;
* slurm.log_user is a string.format: a bare % raises; in slurm_job_modify 22.05 drops it;
* environment of a batch job only; assigning to a name that is absent would add it;
* SIGPIPE is ignored or caught by slurmctld, so a send to a dead peer returns EPIPE.
Runs on Lua 5.1, 5.3 and 5.4; numbers are printed with %.0f because 5.3 would add ".0".
]]

local coloc = {}

local REQUEST_MAX = 262144 -- bytes of one request, as colocd reads it
local ANSWER_MAX = 65536 -- bytes of one answer
local CONNECT_S = 0.05 -- seconds of EAGAIN (a full backlog) before colocd counts as hung
local MESSAGES_MAX, MESSAGE_MAX = 10, 500 -- lines and bytes shown to the user
local TRES_MAX = 1024 -- characters that slurmctld takes in tres_per_node and in comments
local NO_DECISION = "000000000000" -- decision id where colocd did not decide

local settings = {
  socket = "/run/slurm-coloc/colocd.sock",
  off_file = "/etc/slurm-coloc/off",
  deadline_ms = 200, -- for the whole exchange
  breaker_s = 10, -- no call after a daemon that was slow or answered rubbish
  refused_s = 1, -- no call after a refused connect: it costs some 20 us, colocd is soon back
  raw_shard = "refuse", -- or "allow": shards that users ask for themselves
  exclusive_gres = "gres/gpu:1", -- a whole GPU until colocd has told; 22.05: all shards of one
}

-- What outlives one submission.
local state = { closed_until = 0, closed_why = nil, exclusive_gres = nil, prefix = nil }

local HINT = "use sbatch --coloc=SUMMARY, which finds the size, instead of asking for shards"
local TRES = { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }

-- Small things -------------------------------------------------------------------------------

local function log_info(text) slurm.log_info("%s", text) end

local function log_error(text) slurm.log_error("%s", text) end

-- One line for a person: no control characters, bounded.
local function plain(text) return (tostring(text):gsub("%c", " "):sub(1, MESSAGE_MAX)) end

local function tell(text) slurm.log_user("%s", "coloc: " .. plain(text)) end

-- posix modules, or nil and the reason; loaded at the first --coloc job, then kept.
local px, px_missing
local function posix()
  if px or px_missing then return px, px_missing end
  local ok, found = pcall(function()
    return {
      socket = require("posix.sys.socket"),
      poll = require("posix.poll"),
      fcntl = require("posix.fcntl"),
      unistd = require("posix.unistd"),
      time = require("posix.time"),
      errno = require("posix.errno"),
    }
  end)
  if ok then
    px = found
  else
    px_missing = "lua-posix is not installed on the slurmctld host"
    log_error("coloc: " .. px_missing .. ": " .. tostring(found))
  end
  return px, px_missing
end

local function monotonic_s()
  local now = px.time.clock_gettime(px.time.CLOCK_MONOTONIC)
  return now.tv_sec + now.tv_nsec / 1e9
end

-- Effective uid of slurmctld, that is SlurmUser; -1 where it cannot be told.
local slurm_uid
local function slurm_user()
  if not slurm_uid then
    local ok, uid = pcall(function() return require("posix.unistd").geteuid() end)
    if not ok then
      local file = io.open("/proc/self/status")
      local text = file and file:read("*a") or ""
      if file then file:close() end
      uid = tonumber(text:match("\nUid:%s+%d+%s+(%d+)"))
    end
    slurm_uid = uid or -1
  end
  return slurm_uid
end

local function privileged(uid) return uid == 0 or uid == slurm_user() end

-- The switch that works while colocd is dead. Only "no such file" means on: a switch that
-- cannot be read counts as thrown.
local function switched_off()
  local file, _, code = io.open(settings.off_file, "r")
  if file then
    file:close()
    return true
  end
  return not (code == 2 or code == 20) -- ENOENT, ENOTDIR
end

-- Generic resources --------------------------------------------------------------------------

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

-- Does the request name shards? Every submission pays for this one: search before reading.
local function asks_shards(job_desc)
  local found = false
  for _, field in ipairs(TRES) do
    local text = job_desc[field]
    if text and text:lower():find("shard", 1, true) then
      each_gres(text, function(name) found = found or name == "shard" end)
    end
  end
  return found
end

-- GPUs named in the request, added up over its fields; nil where none is named (not 0).
local function asks_gpus(job_desc)
  local gpus
  for _, field in ipairs(TRES) do
    each_gres(job_desc[field] or "", function(name, count)
      if name == "gpu" then gpus = (gpus or 0) + count end
    end)
  end
  return gpus
end

-- "gres:" or "gres/", as this release spells it: what the binding itself writes. Call it only
-- on a submission (not on a modify, where clearing again would clear the job's own request).
local function gres_prefix(job_desc)
  if not state.prefix then
    local before = job_desc.tres_per_node or ""
    job_desc.gres = "gpu:1"
    local written = job_desc.tres_per_node or ""
    job_desc.tres_per_node = before
    state.prefix = written:match("^(gres[:/])gpu:1$") or "gres/"
  end
  return state.prefix
end

local function respell(text, prefix)
  return (("," .. text):gsub(",gres[:/]", "," .. prefix):sub(2))
end

-- JSON, one way ------------------------------------------------------------------------------

-- Length of the well-formed UTF-8 sequence at i, or nil (RFC 3629: no overlong, no surrogate).
local function utf8_length(s, i)
  local a, b, c, d = s:byte(i, i + 3)
  local function tail(x) return x and x >= 0x80 and x <= 0xBF end
  if a < 0x80 then return 1 end
  if a >= 0xC2 and a <= 0xDF then return tail(b) and 2 or nil end
  if a >= 0xE0 and a <= 0xEF then
    local bad = (a == 0xE0 and b and b < 0xA0) or (a == 0xED and b and b > 0x9F)
    return tail(b) and tail(c) and not bad and 3 or nil
  end
  if a >= 0xF0 and a <= 0xF4 then
    local bad = (a == 0xF0 and b and b < 0x90) or (a == 0xF4 and b and b > 0x8F)
    return tail(b) and tail(c) and tail(d) and not bad and 4 or nil
  end
  return nil
end

-- A user's bytes as a JSON string: always valid, what is not UTF-8 becomes U+FFFD.
local function json_string(s)
  if s:find("[\128-\255]") then
    local out, i = {}, 1
    while i <= #s do
      local n = utf8_length(s, i)
      out[#out + 1] = n and s:sub(i, i + n - 1) or "\239\191\189"
      i = i + (n or 1)
    end
    s = table.concat(out)
  end
  s = s:gsub('[%c"\\]', function(c) return ("\\u%04x"):format(c:byte()) end)
  return '"' .. s .. '"'
end

local function json_value(value)
  if type(value) == "string" then return json_string(value) end
  if type(value) == "number" then return ("%.0f"):format(value) end
  return value and "true" or "false"
end

-- pairs of key and value in the order given; a nil value leaves the key out.
local function json_object(pairs_list)
  local out = {}
  for _, entry in ipairs(pairs_list) do
    if entry.raw then
      out[#out + 1] = json_string(entry[1]) .. ":" .. entry.raw
    elseif entry[2] ~= nil then
      out[#out + 1] = json_string(entry[1]) .. ":" .. json_value(entry[2])
    end
  end
  return "{" .. table.concat(out, ",") .. "}"
end

-- The request --------------------------------------------------------------------------------

local STRINGS = {
  "account", "partition", "qos", "features", "tres_per_node", "tres_per_job", "tres_per_task",
  "tres_per_socket", "cpus_per_tres", "mem_per_tres", "admin_comment",
}
-- Number fields and the smallest value that means "unset".
local NUMBERS = {
  { "time_limit", 4294967294 }, { "num_tasks", 4294967294 }, { "ntasks_per_node", 65534 },
  { "min_nodes", 4294967294 }, { "max_nodes", 4294967294 }, { "min_cpus", 4294967294 },
  { "cpus_per_task", 65534 }, { "min_mem_per_node", 2 ^ 53 }, { "min_mem_per_cpu", 2 ^ 53 },
  { "requeue", 65534 },
}
local ENVIRONMENT = {
  "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
  "SLURM_CPUS_PER_GPU", "SLURM_MEM_PER_GPU", "SLURM_GPU_BIND", "SLURM_GPU_FREQ",
  "SLURM_TRES_PER_TASK",
}
local OPTIONS = {
  COLOC_SUMMARY = "summary", COLOC_BATCH_SIZE = "batch_size", COLOC_SEQ_LEN = "seq_len",
  COLOC_OPTIMIZER = "optimizer", COLOC_PRECISION = "precision", COLOC_POLICY = "policy",
  COLOC_KIND = "kind",
}

-- What the SPANK plugin forwarded, or nil for a job that did not ask for us.
local function coloc_options(job_desc)
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
  local out = {}
  if job_desc.script == nil then return "[]" end
  local env = job_desc.environment
  for _, name in ipairs(ENVIRONMENT) do
    if env[name] ~= nil then out[#out + 1] = json_string(name) end
  end
  return "[" .. table.concat(out, ",") .. "]"
end

local function build_request(job_desc, options)
  local list = { { "v", 1 }, { "op", "submit" }, { "flat", true } }
  local function add(key, value) list[#list + 1] = { key, value } end
  add("uid", job_desc.user_id)
  add("gid", job_desc.group_id)
  for _, field in ipairs(STRINGS) do
    local value = job_desc[field]
    if value ~= nil and value ~= "" then add(field, value) end
  end
  for _, entry in ipairs(NUMBERS) do
    local value = job_desc[entry[1]]
    -- 4294967295 is INFINITE: a time limit that the user set to UNLIMITED.
    local infinite = entry[1] == "time_limit" and value == 4294967295
    if value ~= nil and (value < entry[2] or infinite) then add(entry[1], value) end
  end
  if job_desc.array_inx and job_desc.array_inx ~= "" then add("array", job_desc.array_inx) end
  add("het", (job_desc.het_job_offset or 4294967294) < 4294967294)
  add("exclusive_node", job_desc.shared == 0)
  add("batch", job_desc.script ~= nil)
  list[#list + 1] = { "env", raw = environment_names(job_desc) }
  list[#list + 1] = {
    "coloc",
    raw = json_object({
      { "summary", options.summary }, { "batch_size", options.batch_size },
      { "seq_len", options.seq_len }, { "optimizer", options.optimizer },
      { "precision", options.precision }, { "policy", options.policy },
      { "kind", options.kind },
    }),
  }
  return json_object(list) .. "\n"
end

-- The exchange -------------------------------------------------------------------------------
-- Every function returns its value, or nil and a fault {reason code, text, seconds to wait}.

local function fault(code, text, wait_s)
  return nil, { code = code, text = text, wait_s = wait_s }
end

local function late()
  return fault("colocd_slow", ("colocd did not answer within %.0f ms"):format(
    settings.deadline_ms), settings.breaker_s)
end

-- Wait until fd is ready; false at the deadline.
local function ready(fd, event, stop_s)
  while true do
    local left_ms = math.ceil((stop_s - monotonic_s()) * 1000)
    if left_ms <= 0 then return false end
    local n, _, code = px.poll.poll({ [fd] = { events = { [event] = true } } }, left_ms)
    if n and n > 0 then return true end
    if not n and code ~= px.errno.EINTR then return true end -- the next call tells the error
  end
end

local function open_connection(fd, stop_s)
  local give_up_s = math.min(stop_s, monotonic_s() + CONNECT_S)
  px.fcntl.fcntl(fd, px.fcntl.F_SETFD, px.fcntl.FD_CLOEXEC)
  px.fcntl.fcntl(fd, px.fcntl.F_SETFL, px.fcntl.O_NONBLOCK)
  while true do
    local ok, text, code =
      px.socket.connect(fd, { family = px.socket.AF_UNIX, path = settings.socket })
    if ok then return true end
    if code == px.errno.EAGAIN then -- the backlog is full: nothing to poll for, try again
      if monotonic_s() >= give_up_s then
        return fault("colocd_slow", "colocd accepts no connection", settings.breaker_s)
      end
      px.poll.poll({}, 2)
    elseif code ~= px.errno.EINTR then
      return fault("colocd_down", "colocd is not running: " .. tostring(text), settings.refused_s)
    end
  end
end

local function send_all(fd, data, stop_s)
  local at = 1
  while at <= #data do
    local n, text, code = px.socket.send(fd, at == 1 and data or data:sub(at))
    if n then
      at = at + n
    elseif code == px.errno.EAGAIN then
      if not ready(fd, "OUT", stop_s) then return late() end
    elseif code ~= px.errno.EINTR then
      return fault("colocd_down", "colocd hung up: " .. tostring(text), settings.refused_s)
    end
  end
  return true
end

-- The answer up to its empty line, without it.
local function receive(fd, stop_s)
  local text = ""
  while true do
    if not ready(fd, "IN", stop_s) then return late() end
    local part, why, code = px.socket.recv(fd, 8192)
    if part == "" then
      return fault("colocd_down", "colocd hung up in the middle", settings.refused_s)
    elseif part then
      text = text .. part
      local stop = text:find("\n\n", math.max(1, #text - #part), true)
      if stop == #text - 1 then return text:sub(1, stop) end
      if stop or #text > ANSWER_MAX then
        return fault("bad_answer", "colocd's answer is too long", settings.breaker_s)
      end
    elseif code ~= px.errno.EAGAIN and code ~= px.errno.EINTR then
      return fault("colocd_down", "colocd hung up: " .. tostring(why), settings.refused_s)
    end
  end
end

local function exchange(request)
  if #request > REQUEST_MAX then return fault("too_large", "the request is too large") end
  local stop_s = monotonic_s() + settings.deadline_ms / 1000
  local fd, text = px.socket.socket(px.socket.AF_UNIX, px.socket.SOCK_STREAM, 0)
  if not fd then return fault("no_socket", tostring(text)) end
  local ok, value, why = pcall(function()
    local done, problem = open_connection(fd, stop_s)
    if done then done, problem = send_all(fd, request, stop_s) end
    if not done then return nil, problem end
    return receive(fd, stop_s)
  end)
  px.unistd.close(fd)
  if not ok then return fault("lua_error", tostring(value), settings.breaker_s) end
  return value, why
end

-- Ask colocd, unless the breaker is open.
local function ask(request)
  local now = monotonic_s()
  if now < state.closed_until then return fault("breaker", state.closed_why) end
  local answer, why = exchange(request)
  if why and why.wait_s then
    state.closed_until = monotonic_s() + why.wait_s
    state.closed_why = why.text
  end
  return answer, why, (monotonic_s() - now) * 1000
end

-- The answer ---------------------------------------------------------------------------------

local ESCAPES = { ["\\\\"] = "\\", ["\\n"] = "\n", ["\\r"] = "\r" }

local function unescape(text)
  local bad = false
  local out = text:gsub("\\.?", function(pair)
    if not ESCAPES[pair] then bad = true end
    return ESCAPES[pair]
  end)
  return not bad and out or nil
end

-- key=value lines to a table, or nil and why not. Strict: half an answer must not be applied.
local function parse_flat(text)
  local answer = {}
  for line in text:gmatch("([^\n]*)\n") do
    local key, value = line:match("^([%w_.]+)=(.*)$")
    value = value and not value:find("\0", 1, true) and not value:find("\r", 1, true)
      and unescape(value)
    if not value then return nil, "not a key=value line" end
    if answer[key] then return nil, key .. " given twice" end
    answer[key] = value
  end
  if answer.v ~= "1" then return nil, "not version 1" end
  if answer.ok ~= "1" and answer.ok ~= "0" then return nil, "neither ok=1 nor ok=0" end
  return answer
end

local function tres_text(value)
  return #value <= TRES_MAX and value:find("^[%w:/=,_.%-]*$") and value or nil
end

local function whole(least, most)
  return function(value)
    local n = value:find("^%d+$") and #value <= 15 and tonumber(value)
    return n and n >= least and n <= most and n or nil
  end
end

-- Fields that colocd may set, each with its check. open_mode is taken and left alone: Slurm's
-- Lua has no such field, JobFileAppend=1 in slurm.conf does it.
local SETTABLE = {
  tres_per_node = tres_text, tres_per_job = tres_text, tres_per_task = tres_text,
  tres_per_socket = tres_text, tres_bind = tres_text, cpus_per_tres = tres_text,
  mem_per_tres = tres_text,
  cpus_per_task = whole(1, 65533), min_nodes = whole(1, 65533), max_nodes = whole(1, 65533),
  open_mode = function(value) return value == "append" or nil end,
  requeue = whole(0, 1), min_mem_per_node = whole(0, 2 ^ 40),
}
-- The order of writing; the memory last, because an unset one cannot be put back.
local ORDER = {
  "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_bind",
  "cpus_per_tres", "mem_per_tres", "cpus_per_task", "min_nodes", "max_nodes", "requeue",
  "admin_comment", "min_mem_per_node",
}

-- The changes of an answer, all checked before the first is made: {set = {}, env = {}}.
local function read_changes(answer)
  local set, env = {}, {}
  for key, value in pairs(answer) do
    local field, name = key:match("^set%.(.+)$"), key:match("^env%.(.+)$")
    if field then
      local check = SETTABLE[field]
      local checked = check and check(value)
      if checked == nil then return nil, "cannot set " .. field end
      if field ~= "open_mode" then set[field] = checked end
    elseif name then
      if value ~= "" or not name:find("^SLURM_[A-Z0-9_]+$") then
        return nil, "cannot change the environment's " .. name
      end
      env[#env + 1] = name
    end
  end
  local comment = answer.admin_comment
  if comment then
    if #comment > TRES_MAX or comment:find("%c") then return nil, "bad admin_comment" end
    set.admin_comment = comment
  end
  return { set = set, env = env }
end

local ACTIONS = { collocate = true, exclusive = true, asis = true }

-- The answer's text to a checked decision, or nil and a fault.
local function read_answer(text)
  local answer, why = parse_flat(text)
  if not answer then
    return fault("bad_answer", "colocd's answer is not understood: " .. why, settings.breaker_s)
  end
  if answer.ok == "0" then
    local code = (answer.code or ""):match("^[%w_]+$") or "refused"
    return fault("colocd_" .. code, "colocd refused: " .. (answer.message or code))
  end
  local changes
  changes, why = read_changes(answer)
  if changes and not ACTIONS[answer.action or ""] then changes, why = nil, "no known action" end
  if changes and not (answer.decision or ""):find("^%x+$") then
    changes, why = nil, "no decision"
  end
  if changes and not (answer.reason or ""):find("^[%w_.-]+$") then
    changes, why = nil, "no reason"
  end
  if not changes then
    return fault("bad_answer", "colocd's answer is not understood: " .. why, settings.breaker_s)
  end
  if answer.exclusive_gres and tres_text(answer.exclusive_gres) then
    state.exclusive_gres = answer.exclusive_gres
  end
  local messages = {}
  for i = 1, MESSAGES_MAX do messages[i] = answer["message." .. i] end
  return {
    action = answer.action, decision = answer.decision, reason = answer.reason,
    set = changes.set, env = changes.env, messages = messages,
  }
end

-- Applying -----------------------------------------------------------------------------------

local function put(job_desc, field, value)
  job_desc[field] = value
  local now = job_desc[field]
  if now == nil then now = "" end -- a cleared string reads nil
  if now ~= value then error(field .. " did not take " .. tostring(value)) end
end

-- Write the changes; what was there before goes to `undo` first, newest last.
local function write_changes(job_desc, set, env, undo)
  local batch = job_desc.script ~= nil
  for _, name in ipairs(batch and env or {}) do
    local before = job_desc.environment[name]
    if before ~= nil then -- an absent name would be added
      undo[#undo + 1] = function() job_desc.environment[name] = before end
      job_desc.environment[name] = ""
    end
  end
  for _, field in ipairs(ORDER) do
    local value = set[field]
    if value ~= nil then
      local before, per_cpu = job_desc[field], job_desc.min_mem_per_cpu
      undo[#undo + 1] = function()
        if before ~= nil then
          job_desc[field] = before
        elseif type(value) == "string" then
          job_desc[field] = ""
        elseif per_cpu ~= nil then
          job_desc.min_mem_per_cpu = per_cpu
        end
      end
      if type(value) == "string" and field:find("tres", 1, true) and value ~= "" then
        value = respell(value, gres_prefix(job_desc))
      end
      put(job_desc, field, value)
    end
  end
end

-- All the changes or none: true, or nil and the error's text.
local function apply(job_desc, set, env)
  local undo = {}
  local ok, problem = pcall(write_changes, job_desc, set, env, undo)
  if ok then return true end
  for i = #undo, 1, -1 do pcall(undo[i]) end
  return nil, tostring(problem)
end

local function token(comment, action, reason)
  local mine = ("coloc:1:%s:%s:%s:0"):format(NO_DECISION, action, reason)
  if not comment or comment == "" then return mine end
  return #comment + #mine + 2 <= TRES_MAX and comment .. "; " .. mine or comment
end

local function report(job_desc, decision, action, reason, ms)
  log_info(("coloc: uid=%.0f decision=%s action=%s reason=%s ms=%.2f"):format(
    job_desc.user_id or -1, decision, action, reason, ms or 0))
end

-- --coloc was asked for and colocd did not decide: a whole GPU, and say so.
local function on_whole_gpu(job_desc, why, ms)
  local gpus = asks_gpus(job_desc)
  local set, action = {}, "exclusive"
  local words = "the job runs on a whole GPU"
  if gpus == nil then
    local others = job_desc.tres_per_node or ""
    local gpu = (state.exclusive_gres or settings.exclusive_gres):gsub("^gres[:/]", "")
    set.tres_per_node = (others == "" and "" or others .. ",") .. "gres/" .. gpu
  elseif gpus == 0 then
    action, words = "asis", "the job goes as submitted, without a GPU"
  elseif gpus > 1 then
    words = "the job runs on whole GPUs, as submitted"
  end
  set.admin_comment = token(job_desc.admin_comment, action, why.code)
  local ok, problem = apply(job_desc, set, {})
  if not ok then
    log_error("coloc: " .. problem)
    action, words = "asis", "the job goes as submitted"
  end
  report(job_desc, NO_DECISION, action, why.code, ms)
  tell(plain(why.text) .. "; " .. words)
end

-- The two hooks ------------------------------------------------------------------------------

local function refuse(text)
  tell(text)
  log_info("coloc: refused: " .. text)
  return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR
end

local function take(job_desc, options)
  local ready_px, missing = posix()
  if not ready_px then return on_whole_gpu(job_desc, { code = "no_lua_posix", text = missing }) end
  if options.version ~= "1" then
    return on_whole_gpu(job_desc, {
      code = "plugin_version", text = "the SPANK plugin is not of this version of slurm-coloc",
    })
  end
  local text, why, ms = ask(build_request(job_desc, options))
  local decision
  if text then decision, why = read_answer(text) end
  if not decision then
    if text and why.wait_s then
      state.closed_until, state.closed_why = monotonic_s() + why.wait_s, why.text
    end
    return on_whole_gpu(job_desc, why, ms)
  end
  local set, env = decision.set, decision.env
  if decision.action == "asis" then set, env = { admin_comment = set.admin_comment }, {} end
  local ok, problem = apply(job_desc, set, env)
  if not ok then
    log_error("coloc: decision=" .. decision.decision .. ": " .. problem)
    return on_whole_gpu(job_desc, {
      code = "not_applied", text = "the request could not be rewritten",
    }, ms)
  end
  report(job_desc, decision.decision, decision.action, decision.reason, ms)
  for i = 1, MESSAGES_MAX do
    if decision.messages[i] then tell(decision.messages[i]) end
  end
end

local function submit(job_desc, submit_uid)
  local options = coloc_options(job_desc)
  local shard = asks_shards(job_desc)
  if not options and not shard then return slurm.SUCCESS end
  if switched_off() then
    if options then
      report(job_desc, NO_DECISION, "asis", "off")
      tell("switched off by the administrator; the job goes as submitted")
    end
    return slurm.SUCCESS
  end
  if shard and options then
    return refuse("--coloc chooses the shards itself; leave shards out of the request")
  elseif shard then
    if settings.raw_shard == "allow" or privileged(submit_uid) then return slurm.SUCCESS end
    return refuse("shards are handed out by slurm-coloc; " .. HINT)
  end
  take(job_desc, options)
  return slurm.SUCCESS
end

-- Does the edit ask for one whole GPU and nothing else? (22.05 has no such thing: there a GPU
-- can be whole and shared at once, so a whole one is all its shards, which only colocd asks.)
local function whole_gpu_edit(job_desc)
  local wanted = job_desc.tres_per_node
  for _, field in ipairs(TRES) do
    local text = job_desc[field]
    if field ~= "tres_per_node" and text and text ~= "" then return false end
  end
  if not wanted or wanted == "" or gres_prefix(job_desc) ~= "gres/" then return false end
  local gpus, others = 0, 0
  each_gres(wanted, function(name, count)
    if name == "gpu" then gpus = gpus + count else others = others + 1 end
  end)
  return gpus == 1 and others == 0
end

local function modify(job_desc, job_rec, submit_uid)
  local edited = false
  for _, field in ipairs(TRES) do
    if job_desc[field] ~= nil then edited = true end
  end
  if not edited or privileged(submit_uid) or switched_off() then return slurm.SUCCESS end
  -- AdminComment is trusted: only the super user may change it. The last token counts.
  local action
  for found in (job_rec.admin_comment or ""):gmatch("coloc:1:%x+:(%a+):") do action = found end
  if action and action ~= "asis" then
    if whole_gpu_edit(job_desc) then
      log_info(("coloc: job=%.0f the owner goes back to a whole GPU"):format(job_rec.job_id or 0))
      return slurm.SUCCESS
    end
    return refuse("slurm-coloc chose this job's GPU request; only one whole GPU"
      .. " (TresPerNode=gres/gpu:1, Slurm 23.11 or newer) may be asked for instead")
  end
  if settings.raw_shard ~= "allow" and asks_shards(job_desc) then
    return refuse("shards are handed out by slurm-coloc; " .. HINT)
  end
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

--- Decide over one `scontrol update`. Returns what slurm_job_modify is to return.
function coloc.modify(job_desc, job_rec, _, submit_uid)
  return guarded(modify, job_desc, job_rec, submit_uid)
end

--- Change the settings above. A wrong one is logged and left at its default: an error here
--- would keep slurmctld from starting. Returns the module.
function coloc.setup(options)
  for key, value in pairs(options or {}) do
    local good = type(value) == type(settings[key])
    if key == "raw_shard" then good = value == "refuse" or value == "allow" end
    if type(value) == "number" and value < 0 then good = false end
    if good then
      settings[key] = value
    else
      pcall(log_error, ("coloc: setup: bad %s = %s"):format(tostring(key), tostring(value)))
    end
  end
  return coloc
end

return coloc
