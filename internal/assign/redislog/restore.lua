-- Puts back assignments of one hash tag that Redis has lost.
--
-- KEYS[1]  the assignments: a hash, by the text of the subject
-- KEYS[2]  the changes: a stream
-- ARGV[1]  the ID of the newest change that the caller has read, or 0-0
-- ARGV[2]  the epoch that it has read, or empty
-- ARGV[3]  empty while there is more to come; else the ID of the last change that
--          the caller had seen before the loss
-- ARGV[4]  who does it
-- ARGV[5]  how many assignments it has put back, in all calls
-- ARGV[6]  about how many changes the stream keeps
-- ARGV[7]  what names this put-back
-- ARGV[8]  1 if it is the first call of it
-- ARGV[9]  and so on, 2 for each assignment: the text of the subject, and the
--          assignment as it is stored, or empty to remove it
-- reply    the ID of the record, or empty while there is more to come; nothing was
--          done if it is '-': what the caller has read is not so any more
--
-- What is written here was so as of ARGV[3], and no record since then is about it,
-- so it is right whatever stands there. While there is more to come the hash says so,
-- and by whom: nobody takes a part for the whole, nor goes on from a part that was
-- lost again.

local refusal = refusal_of({{'XADD', KEYS[2], '*', 'f', 'v'}, {'HSET', KEYS[1], 'f', 'v'}, {'HDEL', KEYS[1], 'f'}})
if refusal then return refusal end

local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
newest = newest and newest[1] or '0-0'
local epoch = redis.call('HGET', KEYS[1], '~epoch')
if newest ~= ARGV[1] or (epoch or '') ~= ARGV[2] then return '-' end
if ARGV[8] ~= '1' and redis.call('HGET', KEYS[1], '~restorer') ~= ARGV[7] then return '-' end

if ARGV[3] == '' then redis.call('HSET', KEYS[1], '~restorer', ARGV[7]) end
for i = 9, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
if ARGV[3] == '' then return '' end

local function parts(id)
  local ms, seq = id:match('^(%d+)%-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

-- The record goes on from what the caller had seen, or from what was written since.
local ms, seq = parts(ARGV[3])
local newest_ms, newest_seq = parts(newest)
local id, previous = '*', newest
if newest_ms < ms or (newest_ms == ms and newest_seq < seq) then
  previous = ARGV[3]
  -- IDs never go back, though the clock may have.
  local time = redis.call('TIME')
  if time[1] * 1000 + math.floor(time[2] / 1000) <= ms then
    id = string.format('%.0f-%.0f', ms, seq + 1)
  end
end
id = redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[6], id, 'kind', 'restored',
  'by', ARGV[4], 'n', ARGV[5], 'through', ARGV[3], 'p', previous)
-- The epoch goes on, and says when something was last put back (see change.lua).
redis.call('HSET', KEYS[1], '~epoch', (epoch or id):match('^[^ ]*') .. ' restored ' .. id)
redis.call('HDEL', KEYS[1], '~restorer')
return id
