-- The beginning of each script that writes more than one thing. An error takes nothing
-- back, so nothing is written before it is known that all may be.

-- The error for the first of these commands that the user may not run, or nil.
local function refusal_of(commands)
  for _, command in ipairs(commands) do
    if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(command)) then -- since Redis 7.0
      return redis.error_reply("NOPERM this user has no permissions to run the '" .. command[1]:lower() .. "' command on " .. command[2])
    end
  end
end

