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
-- reply    the ID of the record

local refusal = refusal_of({{'XADD', KEYS[1], '*', 'f', 'v'}, {'DEL', unpack(KEYS, 2)}})
if refusal then return refusal end

local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'kind', 'reset', 'subject', ARGV[2],
  'by', ARGV[3], 'reason', ARGV[4], 'limits', ARGV[5], 'keys', ARGV[6], 'p', newest and newest[1] or '0-0')
redis.call('DEL', unpack(KEYS, 2))
return id
