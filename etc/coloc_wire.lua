-- SPDX-License-Identifier: Apache-2.0
--[[
coloc_wire.lua: the words that coloc.lua and colocd exchange, as text. Pure functions: no socket,
no slurm table, no job_desc. The request is one line of JSON; the answer is flat text, lines of
key=value with backslash, newline and CR escaped, ended by one empty line, so that slurmctld needs
no JSON parser.
]]

local wire = {}

wire.TRES_MAX = 1024 -- characters that slurmctld takes in tres_per_node
wire.MESSAGES_MAX = 10 -- lines shown to the user

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

-- A user's bytes as a JSON string: always valid; what is not UTF-8 becomes U+FFFD.
local function json_string(s)
  if not s:find('[%c"\\\128-\255]') then return '"' .. s .. '"' end -- one look at 64 KiB, not two
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

--- JSON text of a string, number, boolean, list of strings {list = ...} or object {entries = ...},
--- where entries are {key, value} in the order wanted and a nil value leaves its key out.
function wire.json(value)
  if type(value) == "string" then return json_string(value) end
  if type(value) == "number" then return ("%.0f"):format(value) end -- 5.3 would print 1.0
  if type(value) ~= "table" then return value and "true" or "false" end
  local out = {}
  for _, item in ipairs(value.list or {}) do out[#out + 1] = wire.json(item) end
  if value.list then return "[" .. table.concat(out, ",") .. "]" end
  for _, entry in ipairs(value.entries) do
    if entry[2] ~= nil then out[#out + 1] = json_string(entry[1]) .. ":" .. wire.json(entry[2]) end
  end
  return "{" .. table.concat(out, ",") .. "}"
end

local ESCAPES = { ["\\\\"] = "\\", ["\\n"] = "\n", ["\\r"] = "\r" }

-- The value of a flat line, or nil where it is not one.
local function unescape(text)
  if text:find("\0", 1, true) or text:find("\r", 1, true) then return nil end
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
    value = value and unescape(value)
    if not value then return nil, "not a key=value line" end
    if answer[key] then return nil, key .. " given twice" end
    answer[key] = value
  end
  if answer.v ~= "1" then return nil, "not version 1" end
  if answer.ok ~= "1" and answer.ok ~= "0" then return nil, "neither ok=1 nor ok=0" end
  return answer
end

local function tres_text(value)
  return #value <= wire.TRES_MAX and value:find("^[%w:/=,_.%-]*$") and value or nil
end

local function whole(least, most)
  return function(value)
    local n = value:find("^%d+$") and #value <= 15 and tonumber(value)
    return n and n >= least and n <= most and n or nil
  end
end

local function name_text(value)
  return #value <= wire.TRES_MAX and value:find("^[%w_.&|,()%[%]%-]*$") and value or nil
end

-- The one constraint on nodes' Extra that is ours: a figure, and numbers of nodes.
local EXTRA_MAX = 400 -- bytes
local function extra_text(value)
  local ours = #value <= EXTRA_MAX and value:find("^smact<%d%d?%d?&%([colc%d<>=&|()]+%)$")
  return ours and value or nil
end

-- Fields that colocd may set, each with its check. Appending the log is not among them: Slurm's
-- Lua has no open_mode (22.05, 24.11); JobFileAppend=1 in slurm.conf does it.
local SETTABLE = {
  tres_per_node = tres_text, tres_per_job = tres_text, tres_per_task = tres_text,
  tres_per_socket = tres_text, tres_bind = tres_text, cpus_per_tres = tres_text,
  mem_per_tres = tres_text,
  cpus_per_task = whole(1, 65533), min_nodes = whole(1, 65533), max_nodes = whole(1, 65533),
  requeue = whole(0, 1), num_tasks = whole(1, 65533), one_task_per_sharing = whole(1, 1),
  min_mem_per_node = whole(0, 2 ^ 40), begin_time = whole(1, 2 ^ 32),
  features = name_text, req_nodes = name_text, extra = extra_text,
}
-- What the job may be told by its environment: its time slot, in seconds.
local GIVEN = { COLOC_SLOT = "^%d+,%d+,%u[%u%d]*$" }
local GIVEN_MAX = 64 -- bytes of one
local MARK_MAX = 200 -- bytes
local ACTIONS = { collocate = true, exclusive = true, asis = true }

-- The answer's set.* and env.* (names to empty, values to give), all checked before the first is
-- made; or nil and why not.
local function read_changes(answer)
  local set, env, given = {}, {}, {}
  for key, value in pairs(answer) do
    local field, name = key:match("^set%.(.+)$"), key:match("^env%.(.+)$")
    if field then
      local check = SETTABLE[field]
      local checked = check and check(value)
      if checked == nil then return nil, "cannot set " .. field end
      set[field] = checked
    elseif name and GIVEN[name] then
      if #value > GIVEN_MAX or not value:find(GIVEN[name]) then
        return nil, "cannot set the environment's " .. name
      end
      given[name] = value
    elseif name then
      if value ~= "" or not name:find("^SLURM_[A-Z0-9_]+$") then
        return nil, "cannot change the environment's " .. name
      end
      env[#env + 1] = name
    end
  end
  return set, env, given
end

-- colocd's mark: the last one in the comment that it sends, where it sends one.
local function read_mark(comment)
  local mark
  for found in comment:gmatch("coloc:1:%x+:%a+:[%w_.-]+:%d+") do mark = found end
  return mark and #mark <= MARK_MAX and mark or nil
end

--- Read colocd's answer. Returns a decision {action, decision, reason, mark (for AdminComment,
--- may be nil), set, env, given, messages, exclusive_gres}; or nil, a code of one word and a text
--- for people.
function wire.read_answer(text)
  local answer, why = parse_flat(text)
  if answer and answer.ok == "0" then
    local code = (answer.code or ""):match("^[%w_]+$") or "refused"
    return nil, "colocd_" .. code, "colocd refused: " .. (answer.message or code)
  end
  local set, env, given
  if answer then set, env, given = read_changes(answer) end
  if answer and not set then
    why = env
  elseif answer and not ACTIONS[answer.action or ""] then
    why = "no known action"
  elseif answer and not (answer.decision or ""):find("^%x+$") then
    why = "no decision"
  elseif answer and not (answer.reason or ""):find("^[%w_.-]+$") then
    why = "no reason"
  elseif answer and answer.exclusive_gres and not tres_text(answer.exclusive_gres) then
    why = "bad exclusive_gres"
  elseif answer and answer.admin_comment and not read_mark(answer.admin_comment) then
    why = "bad admin_comment"
  end
  if why then return nil, "bad_answer", "colocd's answer is not understood: " .. why end
  local messages = {}
  for i = 1, wire.MESSAGES_MAX do messages[#messages + 1] = answer["message." .. i] end
  return {
    action = answer.action, decision = answer.decision, reason = answer.reason,
    mark = read_mark(answer.admin_comment or ""), set = set, env = env,
    given = given, messages = messages,
    exclusive_gres = answer.exclusive_gres,
  }
end

return wire
