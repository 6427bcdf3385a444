-- The beginning of each script that writes more than one thing. An error takes nothing
-- back, so nothing is written before it is known that all may be.

-- The ID that the next record of a stream continues from. newest is that of its last
-- record, or nil. A stream without records was evicted if its tag has an epoch. Then the
-- assignments are whole, and nobody can follow from what he knows: the ID is later than
-- that, so whoever reads the record loads the assignments.
local function continues_from(newest, epoch)
  if newest or not epoch then return newest or '0-0' end
  local time = redis.call('TIME')
  return string.format('%.0f-18446744073709551615', time[1] * 1000 + math.floor(time[2] / 1000) - 1)
end

-- The error for the first of these commands that the user may not run, or nil.
local function refusal_of(commands)
  for _, command in ipairs(commands) do
    if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(command)) then -- since Redis 7.0
      return redis.error_reply("NOPERM this user has no permissions to run the '" .. command[1]:lower() .. "' command on " .. command[2])
    end
  end
end

