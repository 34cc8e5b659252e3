-- SPDX-License-Identifier: Apache-2.0
--[[
job_submit.lua: a sample for sites that have none: copy it beside slurm.conf and set
JobSubmitPlugins=lua. A site that has one adds the lines marked (*) to its own. Our function
comes last, so it sees the request as the site's rules left it.

slurmctld reads this file again when its mtime changes: touch it after a change of coloc*.lua.
An error while this file is read keeps slurmctld from starting, hence the pcall.
]]

local folder = "/usr/libexec/slurm-coloc/" -- (*) where `make install` put coloc*.lua
local loaded, coloc = pcall(dofile, folder .. "coloc.lua") -- (*)
if loaded then -- (*)
  coloc.setup({
    socket = "/run/slurm-coloc/hook/colocd.sock", -- as [daemon] hook_socket of coloc.toml
    off_file = "/etc/slurm-coloc/off", -- as [daemon] off_file of coloc.toml
    -- steered = "a100", -- models whose GPUs have a type each ([placement] of coloc.toml)
    -- deadline_ms = 200, -- a submission waits so long for colocd, then gets a whole GPU
    raw_shard = "refuse", -- "allow": users may go on asking for shards themselves
  })
else
  slurm.log_error("%s", "coloc: not in force: " .. tostring(coloc))
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  -- The site's own rules come here.
  if loaded then return coloc.submit(job_desc, part_list, submit_uid) end -- (*)
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  -- The site's own rules come here.
  if loaded then return coloc.modify(job_desc, job_rec, part_list, modify_uid) end -- (*)
  return slurm.SUCCESS
end

return slurm.SUCCESS
