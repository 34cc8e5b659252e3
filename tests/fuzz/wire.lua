-- SPDX-License-Identifier: Apache-2.0
--[[
wire.lua RUNS SEED: changed answers of colocd to etc/coloc_wire.lua, and a user's strings to its
JSON. Whatever comes, read_answer gives a decision within its checks or says why not, and never an
error; a JSON text is within its bounds and has no byte that would end its string or its line.
Run in the tree's root. The failing input is printed as hexadecimal digits.
]]

package.path = "etc/?.lua;" .. package.path
local wire = require("coloc_wire")

local runs, seed = tonumber(arg[1] or 10000), tonumber(arg[2] or 1)

-- Numerical Recipes' generator: the same inputs on every Lua.
local state = seed % 4294967296
local function below(most)
  state = (1664525 * state + 1013904223) % 4294967296
  return math.floor(state / 4294967296 * most)
end
local function one_of(list) return list[below(#list) + 1] end

local ANSWERS = {
  "v=1\nok=1\naction=collocate\ndecision=0a1b2c3d4e5f\nreason=fits\n"
    .. "set.tres_per_node=gres/shard:4\nset.requeue=1\n"
    .. "env.SLURM_GPUS=\nmessage.1=shares a GPU\nexclusive_gres=gpu:a100:1\n"
    .. "admin_comment=mine coloc:1:0a1b2c3d4e5f:collocate:fits:4\n",
  "v=1\nok=1\naction=exclusive\ndecision=00\nreason=no-summary\nset.features=(a&b)|c\n"
    .. "set.begin_time=1700000000\nset.extra=smact<70&(c|o|l)\nenv.COLOC_SLOT=3600,120,URG\n",
  "v=1\nok=0\ncode=busy\nmessage=too many\\nlines\\\\\n",
  "v=1\nok=1\naction=asis\ndecision=ff\nreason=off\n",
}
local PIECES = {
  "=", "\n", "\r", "\0", "\\", "\\n", "\\x", "v=1\n", "ok=1\n", "set.", "env.", "message.2=",
  "set.tres_per_node=", "set.num_tasks=0\n", "set.min_mem_per_node=-1\n",
  "set.req_nodes=n[1-9]\n",
  "env.LD_PRELOAD=x\n", "env.SLURM_X=\n", "action=collocate\n", "\255\192\128",
  "1e9", "nan", "0x10",
  "9999999999999999", "coloc:1:ab:asis:off:0",
  ("x"):rep(1100), ("["):rep(50), "%", "%s", "(.-)*", '"',
}
local TEXTS = {
  "", "train.sh", "\240\159\152\128", "\237\160\128", "a\0b", '"\\\n\r\t\127', "\255",
}

local function changed(text)
  for _ = 0, below(5) do
    local at, choice = below(#text + 1), below(5)
    if choice == 0 then
      text = text:sub(1, at) .. string.char(below(256)) .. text:sub(at + 2)
    elseif choice == 1 then
      text = text:sub(1, at) .. text:sub(at + 1 + below(20))
    elseif choice == 2 then
      text = text:sub(1, at) .. one_of(PIECES) .. text:sub(at + 1)
    elseif choice == 3 then
      local from = below(#text + 1)
      text = text:sub(1, at) .. text:sub(from, from + below(40)) .. text:sub(at + 1)
    else
      text = text .. one_of(ANSWERS):sub(below(30) + 1)
    end
  end
  return text
end

local function fail(why, input)
  print("fuzz lua: " .. why)
  print((input:gsub(".", function(c) return ("%02x"):format(c:byte()) end)))
  os.exit(1)
end

local function within(value) return type(value) == "string" and not value:find("%z") end

local function check_answer(text)
  local good, found, code, why = pcall(wire.read_answer, text)
  if not good then fail("an error: " .. tostring(found), text) end
  if found == nil then
    if type(code) ~= "string" or not code:find("^[%w_]+$") then fail("no code", text) end
    if type(why) ~= "string" then fail("no reason", text) end
    return
  end
  if not found.decision:find("^%x+$") then fail("a decision of other characters", text) end
  if #found.messages > wire.MESSAGES_MAX then fail("too many messages", text) end
  for _, message in ipairs(found.messages) do
    if not within(message) then fail("a message of other characters", text) end
  end
  for name, value in pairs(found.set) do
    if type(value) == "string" then
      if #value > wire.TRES_MAX or value:find("[%z\1-\32\127-\255;'\"`$]") then
        fail("a field of other characters: " .. name, text)
      end
    elseif value ~= math.floor(value) or value < 0 or value > 2 ^ 40 then
      fail("a number out of its range: " .. name, text)
    end
  end
  for _, name in ipairs(found.env) do
    if not name:find("^SLURM_[A-Z0-9_]+$") then fail("a variable that is not Slurm's", text) end
  end
end

local function check_json(text)
  local good, found = pcall(wire.json, text)
  if not good then fail("an error: " .. tostring(found), text) end
  if #found > 6 * #text + 2 then fail("longer than six times its text", text) end
  local inside = found:match('^"(.*)"$')
  if not inside or inside:find("[%z\1-\31]") then fail("a control character in JSON", text) end
  if inside:gsub('\\[\\"nrt]', ""):gsub("\\u%x%x%x%x", ""):find('[\\"]') then
    fail("a string that ends too early", text)
  end
  local entries = { { "a", text }, { "b", { list = { text, text } } } }
  local object = wire.json({ entries = entries }, 500)
  if object and #object > 500 then fail("longer than it may be", text) end
end

for _ = 1, runs do
  check_answer(changed(one_of(ANSWERS)))
  check_json(changed(one_of(TEXTS)))
end
print(("fuzz lua: %d inputs, no failure"):format(2 * runs))
