-- SPDX-License-Identifier: Apache-2.0
--[[
coloc_call.lua: one request to colocd and its answer, over a Unix socket, within a deadline; and
the breaker that leaves a daemon alone that did not answer. Nothing here blocks: a connect to a
stopped daemon whose backlog is full would, so connect and send are non-blocking and every wait
is a poll with what is left of the deadline.

Needs lua-posix (33.4 and 36.3 were tried inside slurmctld). slurmctld 22.05 and 24.11 ignore or
catch SIGPIPE, so a send to a dead peer returns EPIPE.

A fault is a table {code = one word, text = for people, wait_s = most seconds without calls,
late = true for an answer that did not come in time}; no wait_s: it is this job's own trouble, and
the next job may call.
]]

local call = {}

call.REQUEST_MAX = 262144 -- bytes of one request, as colocd reads it
local ANSWER_MAX = 65536 -- bytes of one answer
local CONNECT_S = 0.05 -- seconds of EAGAIN (a full backlog) before colocd counts as hung

-- The breaker: no call before closed_until (monotonic seconds), and why; late answers in a row.
local closed_until, closed_why, misses = 0, nil, 0

-- posix modules, or nil and the reason; loaded at the first --coloc job, then kept.
local px, px_missing

local function load_posix()
  if px or px_missing then return end
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
    slurm.log_error("%s", "coloc: " .. px_missing .. ": " .. tostring(found))
  end
end

local function monotonic_s()
  local now = px.time.clock_gettime(px.time.CLOCK_MONOTONIC)
  return now.tv_sec + now.tv_nsec / 1e9
end

local function fault(code, text) return nil, { code = code, text = text } end

local function slow(settings, text)
  return nil, { code = "colocd_slow", text = text, wait_s = settings.breaker_s, late = true }
end

local function late(settings)
  return slow(settings, ("colocd did not answer within %.0f ms"):format(settings.deadline_ms))
end

local function gone(settings, text)
  return nil, { code = "colocd_down", text = text, wait_s = settings.refused_s }
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

-- The connection to colocd, kept from one call to the next: to make one anew costs slurmctld and
-- colocd more than all the rest of a call. One stays open unused where slurmctld reads this file
-- again; a finalizer that calls into lua-posix while a Lua state ends could end slurmctld with it.
local kept

local function drop()
  if kept then px.unistd.close(kept) end
  kept = nil
end

-- Does it stand? colocd closes one that was idle for long or whose colocd has ended; what comes
-- unasked is no answer to the next request.
local function stands()
  local part, _, code = px.socket.recv(kept, 1)
  return not part and (code == px.errno.EAGAIN or code == px.errno.EINTR)
end

local function connect(stop_s, settings)
  local fd, why = px.socket.socket(px.socket.AF_UNIX, px.socket.SOCK_STREAM, 0)
  if not fd then return fault("no_socket", tostring(why)) end
  kept = fd
  local give_up_s = math.min(stop_s, monotonic_s() + CONNECT_S)
  px.fcntl.fcntl(fd, px.fcntl.F_SETFD, px.fcntl.FD_CLOEXEC)
  px.fcntl.fcntl(fd, px.fcntl.F_SETFL, px.fcntl.O_NONBLOCK)
  local address = { family = px.socket.AF_UNIX, path = settings.socket }
  while true do
    local ok, text, code = px.socket.connect(fd, address)
    if ok then return true end
    if code == px.errno.EAGAIN then -- the backlog is full: nothing to poll for, try again
      if monotonic_s() >= give_up_s then
        return slow(settings, "colocd accepts no connection")
      end
      px.poll.poll({}, 2)
    elseif code ~= px.errno.EINTR then
      return gone(settings, "colocd is not running (" .. tostring(text) .. ")")
    end
  end
end

local function send_all(fd, data, stop_s, settings)
  local at = 1
  while at <= #data do
    local n, text, code = px.socket.send(fd, at == 1 and data or data:sub(at))
    if n then
      at = at + n
    elseif code == px.errno.EAGAIN then
      if not ready(fd, "OUT", stop_s) then return late(settings) end
    elseif code ~= px.errno.EINTR then
      return gone(settings, "colocd hung up (" .. tostring(text) .. ")")
    end
  end
  return true
end

-- The answer up to its empty line, which is left out.
local function receive(fd, stop_s, settings)
  local text = ""
  while true do
    if not ready(fd, "IN", stop_s) then return late(settings) end
    local part, why, code = px.socket.recv(fd, 8192)
    if part == "" then
      return gone(settings, "colocd hung up before its answer's end")
    elseif part then
      text = text .. part
      local stop = text:find("\n\n", math.max(1, #text - #part), true)
      if stop and stop == #text - 1 then return text:sub(1, stop) end
      if stop or #text > ANSWER_MAX then
        return fault("bad_answer", "colocd's answer is too long")
      end
    elseif code ~= px.errno.EAGAIN and code ~= px.errno.EINTR then
      return gone(settings, "colocd hung up (" .. tostring(why) .. ")")
    end
  end
end

--- The fault of a request that is not sent; the text says what of it is too large.
function call.too_large(text) return fault("too_large", text or "the request is too large") end

local function talk(request, stop_s, settings)
  local sent, why = send_all(kept, request, stop_s, settings)
  if not sent then return nil, why end
  return receive(kept, stop_s, settings)
end

local function exchange(request, settings)
  if #request > call.REQUEST_MAX then return call.too_large() end
  local stop_s = monotonic_s() + settings.deadline_ms / 1000
  local ok, value, why = pcall(function()
    if kept and stands() then
      local answer, problem = talk(request, stop_s, settings)
      -- A kept one that ends now is no news of colocd: a new one tells.
      if answer or problem.code ~= "colocd_down" then return answer, problem end
    end
    drop()
    local connected, problem = connect(stop_s, settings)
    if not connected then return nil, problem end
    return talk(request, stop_s, settings)
  end)
  if not ok then value, why = fault("lua_error", tostring(value)) end
  if not value then drop() end
  return value, why
end

-- Calls fail at once with this fault's text for its wait_s; after late answers for 1, 2, 4, ...
-- seconds up to it. One late answer of a busy daemon is no hung daemon: with a fixed 10 s it sent
-- 143 of 2000 jobs to whole GPUs. A daemon that is gone costs no time and does not count as late.
local function leave_alone(why)
  local wait_s = why.wait_s
  if why.late then
    wait_s = math.min(wait_s, 2 ^ misses)
    misses = misses + 1
  end
  closed_until, closed_why = monotonic_s() + wait_s, why.text
end

--- Ask colocd. compose() gives the request's text, only when it is really sent, or nil and a
--- fault. settings: socket, deadline_ms, breaker_s, refused_s. Returns the answer's text or nil,
--- the fault or nil, and the milliseconds that it took.
function call.ask(compose, settings)
  load_posix()
  if not px then return nil, { code = "no_lua_posix", text = px_missing }, 0 end
  local start_s = monotonic_s()
  if start_s < closed_until then return nil, { code = "breaker", text = closed_why }, 0 end
  local request, why = compose()
  local answer
  if request then answer, why = exchange(request, settings) end
  if answer then
    misses = 0
  elseif why.wait_s then
    leave_alone(why)
  end
  return answer, why, (monotonic_s() - start_s) * 1000
end

--- Effective uid of slurmctld, that is SlurmUser; -1 where it cannot be told.
function call.own_uid()
  load_posix()
  if px then return px.unistd.geteuid() end
  local file = io.open("/proc/self/status")
  local text = file and file:read("*a") or ""
  if file then file:close() end
  return tonumber(text:match("\nUid:%s+%d+%s+(%d+)")) or -1
end

return call
