-- The beginning of each script that appends to the record of changes.
--
-- KEYS[1]  the assignments: a hash by the text of the subject, of "<etag> <JSON>". Its
--          field ~id says that it is whole: "<newest change in it when it was filled>
--          <newest record then>"
-- KEYS[2]  the record of changes: a stream. An entry has p, the ID of the record
--          before it, r, the record as JSON, and the keys of the states that were reset
-- ARGV[1]  empty; in tests the clock, in microseconds
-- ARGV[2]  about how many records the stream keeps

local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local newest = last and last[1] or '0-0'

local function parts(id)
  local ms, seq = id:match('^(%d+)%-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function is_before(id, other)
  local ms, seq = parts(id)
  local other_ms, other_seq = parts(other)
  return ms < other_ms or ms == other_ms and seq < other_seq
end

-- Appends a record to the one with the ID previous. Its ID is after both that and newest,
-- though the clock may have gone back. Returns it.
local function append(previous, record, keys)
  local ms, seq = parts(is_before(newest, previous) and previous or newest)
  local time = redis.call('TIME')
  local now = math.floor((tonumber(ARGV[1]) or time[1] * 1000000 + time[2]) / 1000)
  newest = now > ms and string.format('%.0f-0', now) or string.format('%.0f-%.0f', ms, seq + 1)
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], newest, 'p', previous, 'r', record, 'keys', keys)
  return newest
end

