-- SPDX-License-Identifier: Apache-2.0
--[[
coloc_steer.lua: requests by a model of GPUs, on nodes where each GPU has a gres type of its own.

There `gpu:a100:1` is refused ("Requested node configuration is not available"), because the types
are a100-0, a100-1, ...: the model is a feature of the nodes instead. So `gpu:a100:1` becomes
`gpu:1` with the constraint a100, for every job, with --coloc or without. What an `srun` inside the
script reads back of the request is changed alike; what it names itself is not (cli_filter.lua).
]]

local steer = {}

local VALUE_MAX = 1024 -- bytes of an environment variable; a longer one stays as it is
local FEATURES_MAX = 4096 -- bytes of a constraint that is looked at

local TRES = { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }
-- sbatch's exports that hold "a100:2" or, the last one, "gres/gpu:a100=1".
local ENVIRONMENT = {
  "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
  "SLURM_TRES_PER_TASK",
}

--- The models of a comma list as a set; nil for an empty one.
function steer.models(text)
  local found
  for name in text:gmatch("[%w_.-]+") do
    found = found or {}
    found[name] = true
  end
  return found
end

-- A tres string without these models; `seen` gets those that it named.
function steer.untyped(text, models, seen)
  return (text:gsub("[^,]+", function(item)
    local head, kind, count = item:match("^(%s*gres[:/]gpu):([^:=%s]+)([:=]%d+)%s*$")
    if not head then
      head, kind = item:match("^(%s*gres[:/]gpu):([^:=%s]+)%s*$")
      count = ":1"
    end
    if not head or not models[kind] then return item end
    seen[kind] = true
    return head .. count
  end))
end

-- "a100:2" and "a100" of an option's own variable.
local function untyped_option(text, models)
  local kind, count = text:match("^([^:=]+)[:=](%d+)$")
  if kind and models[kind] then return count end
  if models[text] then return "1" end
  return text
end

--- A constraint with one more feature; nil where it is too rich for that.
function steer.with_feature(features, model)
  if features == "" then return model end
  if features:find("[%[%]*()]") then return nil end
  for word in features:gmatch("[^&|,]+") do
    if word == model and not features:find("|", 1, true) then return features end
  end
  if features:find("|", 1, true) then return "(" .. features .. ")&" .. model end
  return features .. "&" .. model
end

local function environment(job_desc, models)
  if job_desc.script == nil then return end
  for _, name in ipairs(ENVIRONMENT) do
    local value = job_desc.environment[name]
    if value ~= nil and value ~= "" and #value <= VALUE_MAX then
      local changed = name == "SLURM_TRES_PER_TASK" and steer.untyped(value, models, {})
        or untyped_option(value, models)
      if changed ~= value then job_desc.environment[name] = changed end
    end
  end
end

--- What a request is to become: fields to set, or nil where nothing is, and then maybe why not.
function steer.change(job_desc, models)
  local set, seen = {}, {}
  for _, field in ipairs(TRES) do
    local text = job_desc[field]
    if text and text:find("gpu:", 1, true) then
      local changed = steer.untyped(text, models, seen)
      if changed ~= text then set[field] = changed end
    end
  end
  local model = next(seen)
  if not model then return nil end
  if next(seen, model) then return nil, "GPUs of several models in one request" end
  local features = job_desc.features or ""
  if #features > FEATURES_MAX then return nil, "the constraint is too long" end
  set.features = steer.with_feature(features, model)
  if not set.features then return nil, "the constraint cannot take the feature " .. model end
  return set
end

--- Changes the request. `apply` is job.apply, which does all of it or nothing.
function steer.apply(job_desc, models, apply)
  local set, why = steer.change(job_desc, models)
  if not set then return why end
  local ok, problem = apply(job_desc, set, {})
  if not ok then return problem end
  environment(job_desc, models)
end

return steer
