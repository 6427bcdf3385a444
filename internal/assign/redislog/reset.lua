-- Forgets states of one hash tag and records it, both or neither.
--
-- KEYS[1]  the changes: a stream
-- KEYS[2]  and so on: the states
-- ARGV[1]  about how many changes the stream keeps
-- ARGV[2]  the subject as JSON
-- ARGV[3]  who does it
-- ARGV[4]  why
-- ARGV[5]  the names of the limits as a JSON array
-- ARGV[6]  the keys of the states as a JSON array
-- ARGV[7]  "1" to do nothing if there is none of the states
-- reply    how many states there were, and the ID of the record, or "" if nothing was done

local refusal = refusal_of({{'XADD', KEYS[1], '*', 'f', 'v'}, {'DEL', unpack(KEYS, 2)}, {'GET', KEYS[2]}})
if refusal then return refusal end

if ARGV[7] == '1' then
  local counted = false
  for i = 2, #KEYS do counted = counted or redis.call('GET', KEYS[i]) end
  if not counted then return {0, ''} end
end

local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'kind', 'reset', 'subject', ARGV[2],
  'by', ARGV[3], 'reason', ARGV[4], 'limits', ARGV[5], 'keys', ARGV[6], 'p', newest and newest[1] or '0-0')
return {redis.call('DEL', unpack(KEYS, 2)), id}
