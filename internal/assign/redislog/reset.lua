-- Forgets states of one hash tag.
--
-- KEYS     the states, and then as many keys that say when they were reset
-- ARGV[1]  how long bills may be left from before, in milliseconds
-- reply    how many states there were

local n = #KEYS / 2
local time = redis.call('TIME')
local now = struct.pack('<d', time[1] * 1000000 + time[2]) -- bills.lua of the store reads it
for i = n + 1, #KEYS do redis.call('SET', KEYS[i], now, 'PX', ARGV[1]) end
return redis.call('DEL', unpack(KEYS, 1, n))
