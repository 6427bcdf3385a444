-- Says which of the commands that assignments need this user may not run. It runs
-- none of them.
--
-- KEYS[1]  a key of assignments, of any type
-- reply    their names; none also where the server cannot tell

local needed = {
  {'GET', KEYS[1]}, {'SET', KEYS[1], 'v'}, {'DEL', KEYS[1]}, {'PEXPIRE', KEYS[1], '1'},
  {'HGET', KEYS[1], 'f'}, {'HSET', KEYS[1], 'f', 'v'}, {'HSETNX', KEYS[1], 'f', 'v'}, {'HDEL', KEYS[1], 'f'},
  {'HLEN', KEYS[1]}, {'HMGET', KEYS[1], 'f'}, {'HKEYS', KEYS[1]}, {'HSCAN', KEYS[1], '0'},
  {'XADD', KEYS[1], '*', 'f', 'v'}, {'XRANGE', KEYS[1], '-', '+'}, {'XREVRANGE', KEYS[1], '+', '-'},
  {'XREAD', 'STREAMS', KEYS[1], '0'},
}
local missing = {}
if redis.acl_check_cmd then -- since Redis 7.0
  for _, command in ipairs(needed) do
    if not redis.acl_check_cmd(unpack(command)) then missing[#missing + 1] = command[1]:lower() end
  end
end
return missing
