-- Changes assignments of one hash tag, all in one step, and records each change.
--
-- KEYS[1]  the assignments: a hash, by the text of the subject
-- KEYS[2]  the changes: a stream
-- ARGV[1]  empty; in tests the clock, in microseconds
-- ARGV[2]  about how many changes the stream keeps
-- ARGV[3]  1 if the same was sent before and the reply was lost: what is in force
--          as it was asked for is then no conflict
-- ARGV[4]  and so on, 6 for each change: the text of the subject; the subject as
--          JSON; the version that must be in force, 'none', or empty; who makes
--          it; why; and the assignment as JSON without etag, at and by, or empty
--          to delete
-- reply    the ID of the last change in the stream, then 3 for each change: what
--          became of it, what was in force before and what is after, or empty
--
-- An assignment is stored as a JSON object that begins with etag, at and by, and
-- goes on as the caller wrote it: so equal ones end alike. Its etag is the ID of
-- its change. What cannot be read, and what has ended, counts as absent.

local CREATED, REPLACED, UNCHANGED, DELETED, CONFLICT = 1, 2, 3, 4, 5

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local moment = string.format('%.0f', now)

-- The ETag of a stored assignment that is in force, or nil.
local function etag_in_force(value)
  local ok, a = pcall(cjson.decode, value) -- value is false where there is none
  if not ok or type(a) ~= 'table' or type(a.etag) ~= 'string' then return nil end
  local ends = a.ends
  if type(ends) == 'number' and ends ~= 0 and ends <= now then return nil end
  return a.etag
end

local function ends_with(value, tail) return value:sub(-#tail) == tail end

local stored = {}
local function read(text)
  if stored[text] == nil then stored[text] = redis.call('HGET', KEYS[1], text) end
  return stored[text]
end

-- Both keys are read before the first write: a key of another type fails here.
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local last = newest and newest[1] or '0-0'
redis.call('HLEN', KEYS[1])

local function record(kind, subject, by, reason, before, after)
  last = redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', 'kind', kind, 'subject', subject,
    'by', by, 'reason', reason, 'before', before, 'after', after, 'p', last)
  return last
end

local reply = {''}
for i = 4, #ARGV, 6 do
  local text, subject, match, by, reason, body = unpack(ARGV, i, i + 5)
  local value = read(text)
  local etag = etag_in_force(value)
  local before = etag and value or ''
  local after = before
  local tail = ',' .. body:sub(2)
  local same = etag and body ~= '' and ends_with(value, tail)
  local wanted = match == '' or (match == 'none' and not etag) or match == etag
  if not wanted and ARGV[3] == '1' then wanted = same or (body == '' and not etag) end

  local outcome
  if not wanted then
    outcome = CONFLICT
  elseif same or (body == '' and not etag) then
    outcome = UNCHANGED
  elseif body == '' then
    outcome, after = DELETED, ''
    record('unassigned', subject, by, reason, before, '')
    redis.call('HDEL', KEYS[1], text)
    stored[text] = false
  else
    outcome = etag and REPLACED or CREATED
    local rest = '"at":' .. moment .. ',"by":' .. cjson.encode(by) .. tail
    local id = record('assigned', subject, by, reason, before, '{' .. rest)
    after = '{"etag":"' .. id .. '",' .. rest
    redis.call('HSET', KEYS[1], text, after)
    stored[text] = after
  end
  reply[#reply + 1] = outcome
  reply[#reply + 1] = before
  reply[#reply + 1] = after
end
reply[1] = last
return reply
