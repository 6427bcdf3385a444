-- Makes changes, each if it finds what it expects, and records them.
--
-- KEYS, ARGV[1], ARGV[2]  see append.lua
-- ARGV[3]  the newest change that the caller has, or 0-0
-- ARGV[4]  and so on, 4 for each change: the text of the subject; the etag of what is to
--          be there, or empty; what it becomes, or empty; the record. For a record alone
--          the text is empty, and the third the keys of the states that were reset
-- reply    LOST if Redis has lost the assignments, and nothing was done; else 2 for each
--          change: 1 and its ID, or 0 and what is there if that is something else

for _, command in ipairs({{'XADD', KEYS[2], '*', 'f', 'v'}, {'HSET', KEYS[1], 'f', 'v'}, {'HDEL', KEYS[1], 'f'}}) do
  if not redis.acl_check_cmd(unpack(command)) then -- or a change would be recorded and not made
    return redis.error_reply("NOPERM this user has no permissions to run the '" .. command[1]:lower() .. "' command on " .. command[2])
  end
end

local fields = redis.call('HLEN', KEYS[1])
local is_empty = not last and fields == 1 and ARGV[3] ~= '0-0'
if is_empty or redis.call('HEXISTS', KEYS[1], '~id') == 0 then return 'LOST' end

local reply = {}
for i = 4, #ARGV, 4 do
  local text, etag, after, record = unpack(ARGV, i, i + 3)
  local held = text ~= '' and redis.call('HGET', KEYS[1], text) or ''
  if (held:match('^%S+') or '') ~= etag then
    reply[#reply + 1] = 0
    reply[#reply + 1] = held
  else
    local id = append(newest, record, text == '' and after or '')
    if text ~= '' and after == '' then
      redis.call('HDEL', KEYS[1], text)
    elseif text ~= '' then
      redis.call('HSET', KEYS[1], text, id .. ' ' .. after)
    end
    reply[#reply + 1] = 1
    reply[#reply + 1] = id
  end
end
return reply
