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

-- UTF-8 beyond ASCII, commonest first; and what of it is none: bytes that are in no sequence, and
-- by first byte overlong ones, surrogates and what is beyond U+10FFFF (RFC 3629).
local SEQUENCES = {
  "[\194-\223][\128-\191]",
  "[\224-\239][\128-\191][\128-\191]",
  "[\240-\244][\128-\191][\128-\191][\128-\191]",
}
local NEVER = "[\192\193\245-\255]"
local NARROW = {
  ["\224"] = "[\128-\159]", ["\237"] = "[\160-\191]",
  ["\240"] = "[\128-\143]", ["\244"] = "[\144-\191]",
}
local BEYOND_ASCII = "[\128-\255]"

-- The blanks keep pieces apart that would make a sequence together.
local function well_formed(s)
  local rest = s:gsub("[%z\1-\127]+", " ")
  if rest:find(NEVER) then return false end
  for first, second in pairs(NARROW) do
    if rest:find(first, 1, true) and rest:find(first .. second) then return false end
  end
  for _, sequence in ipairs(SEQUENCES) do
    local found
    rest, found = rest:gsub(sequence, " ")
    if found > 0 and not rest:find(BEYOND_ASCII) then return true end
  end
  return false
end

-- ASCII that JSON takes as it is: all but control characters, " and \. Anchored, which is the
-- library's quickest way to read a text.
local PLAIN = "^[]-~ !#-[]*$"
local ESCAPED = { ["\127"] = "\\u007f" }
for code = 1, 31 do ESCAPED[string.char(code)] = ("\\u%04x"):format(code) end
ESCAPED['"'], ESCAPED["\\"] = '\\"', "\\\\"
ESCAPED["\n"], ESCAPED["\r"], ESCAPED["\t"] = "\\n", "\\r", "\\t"

-- A user's bytes as a JSON string: always valid; in a text that is no UTF-8 each byte beyond ASCII
-- becomes U+FFFD. slurmctld waits meanwhile, so there is no work in Lua by the byte, whatever they
-- are: each step is one call of the library over the whole text.
-- (A NUL stays: none is in a string that comes from C.)
local function escaped(s)
  if s:find(PLAIN) then return s end
  if s:find(BEYOND_ASCII) and not well_formed(s) then
    s = s:gsub(BEYOND_ASCII, "\239\191\189")
  end
  return (s:gsub('[%c"\\]', ESCAPED))
end

local function json_string(s)
  s = escaped(s)
  if s:find("\0", 1, true) then s = s:gsub("%z", "\\u0000") end
  return '"' .. s .. '"'
end

-- A NUL between the strings, so that many short ones cost what one long one does.
local function json_list(list)
  if #list == 0 then return "[]" end
  return '["' .. escaped(table.concat(list, "\0")):gsub("%z", '","') .. '"]'
end

-- The text of an object, or nil as soon as it is longer than most bytes.
local function json_object(entries, most)
  local out, size = {}, 2
  for _, entry in ipairs(entries) do
    local value = entry[2]
    if value ~= nil then
      local text = wire.json(value, most - size)
      size = size + #entry[1] + 4 + #(text or "")
      if not text or size > most then return nil end
      out[#out + 1] = '"' .. entry[1] .. '":' .. text
    end
  end
  return "{" .. table.concat(out, ",") .. "}"
end

--- Bytes of the strings in what wire.json takes: its text has at least as many, and at most six
--- times as many.
function wire.size(value)
  if type(value) == "string" then return #value end
  if type(value) ~= "table" then return 0 end
  local size = 0
  for _, item in ipairs(value.list or {}) do size = size + #item end
  for _, entry in ipairs(value.entries or {}) do size = size + wire.size(entry[2]) end
  return size
end

--- JSON text of a string, number, boolean, list of strings {list = ...} or object {entries = ...},
--- where entries are {key, value} in the order wanted and a nil value leaves its key out. nil where
--- an object's would be longer than most bytes. Keys are ours and need no escapes.
function wire.json(value, most)
  if type(value) == "string" then return json_string(value) end
  if type(value) == "number" then return ("%.0f"):format(value) end -- 5.3 would print 1.0
  if type(value) ~= "table" then return value and "true" or "false" end
  if value.list then return json_list(value.list) end
  return json_object(value.entries, most)
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
