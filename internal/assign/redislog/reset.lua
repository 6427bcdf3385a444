-- Forgets states of one hash tag and records it, both or neither.
--
-- KEYS[1]  the changes: a stream
-- KEYS[2]  the assignments: a hash
-- KEYS[3]  and so on: the states, and then as many keys that say when they were reset
-- ARGV[1]  about how many changes the stream keeps
-- ARGV[2]  the subject as JSON
-- ARGV[3]  who does it
-- ARGV[4]  why
-- ARGV[5]  the names of the limits as a JSON array
-- ARGV[6]  the keys of the states as a JSON array
-- ARGV[7]  "1" to do nothing if there is none of the states
-- ARGV[8]  how long bills may be left from before, in milliseconds
-- reply    how many states there were, and the ID of the record, or "" if nothing was done

local last = 2 + (#KEYS - 2) / 2 -- the index of the last state

local refusal = refusal_of({{'XADD', KEYS[1], '*', 'f', 'v'}, {'HGET', KEYS[2], 'f'},
  {'DEL', unpack(KEYS, 3, last)}, {'GET', KEYS[3]}, {'SET', KEYS[last + 1], 'v', 'PX', 1}})
if refusal then return refusal end

if ARGV[7] == '1' then
  local counted = false
  -- A key of another type than a text is an error, and a state as well.
  for i = 3, last do counted = counted or redis.pcall('GET', KEYS[i]) end
  if not counted then return {0, ''} end
end

local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local previous = continues_from(newest and newest[1], redis.call('HGET', KEYS[2], '~epoch'))
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'kind', 'reset', 'subject', ARGV[2],
  'by', ARGV[3], 'reason', ARGV[4], 'limits', ARGV[5], 'keys', ARGV[6], 'p', previous)
local time = redis.call('TIME')
local now = struct.pack('<d', time[1] * 1000000 + time[2]) -- bills.lua of the store reads it
for i = last + 1, #KEYS do redis.call('SET', KEYS[i], now, 'PX', ARGV[8]) end
return {redis.call('DEL', unpack(KEYS, 3, last)), id}
