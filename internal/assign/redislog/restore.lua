-- Puts back, in several calls, the assignments that Redis has lost.
--
-- KEYS, ARGV[1], ARGV[2]  see append.lua
-- KEYS[3]  who puts back: "<newest change that it has> <token>"
-- ARGV[3]  the newest change that the caller has, or 0-0
-- ARGV[4]  the caller's token
-- ARGV[5]  after how many ms of silence another daemon may go on instead
-- ARGV[6]  1 at the first call
-- ARGV[7]  empty while there is more to come; else the record of it
-- ARGV[8]  how many assignments were put back so far
-- ARGV[9]  and so on, 2 for each assignment: the text of the subject, and its value
-- reply    THERE if Redis has assignments, and WAIT if another daemon puts back no older
--          ones, or those so far are lost again: then nothing was done. Else the ID of the
--          record, empty without one yet
--
-- What was put back as of an older change is put back again, unless someone has changed
-- something since.

local since, token = (redis.call('GET', KEYS[3]) or ''):match('^(%S+) (%S+)$')
local as_of, until_now = (redis.call('HGET', KEYS[1], '~id') or ''):match('^(%S+) (%S+)$')
if ARGV[6] == '1' then
  local is_whole = as_of and (last or redis.call('HLEN', KEYS[1]) > 1 or ARGV[3] == '0-0')
  local is_older = as_of and last and until_now == newest and is_before(as_of, ARGV[3])
  if is_whole and not is_older then return 'THERE' end
  if since and not is_before(since, ARGV[3]) then return 'WAIT' end
  redis.call('DEL', KEYS[1])
elseif token ~= ARGV[4] then
  return 'WAIT'
elseif redis.call('HLEN', KEYS[1]) ~= tonumber(ARGV[8]) then -- it was evicted meanwhile
  redis.call('DEL', KEYS[3])
  return 'WAIT'
end
redis.call('SET', KEYS[3], ARGV[3] .. ' ' .. ARGV[4], 'PX', ARGV[5])
if #ARGV > 8 then redis.call('HSET', KEYS[1], unpack(ARGV, 9)) end
if ARGV[7] == '' then return '' end

local id = ARGV[3] == '0-0' and '0-0' or append(ARGV[3], ARGV[7], '')
redis.call('HSET', KEYS[1], '~id', ARGV[3] .. ' ' .. newest)
redis.call('DEL', KEYS[3])
return id
