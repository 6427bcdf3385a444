-- Removes assignments that have ended.
--
-- KEYS[1]  the assignments: a hash, by the text of the subject
-- ARGV[1]  empty; in tests the clock, in microseconds
-- ARGV[2]  and so on: the texts of subjects
-- reply    1 for each of these that is not there any more, or else 0

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local reply = {}
for i = 2, #ARGV do
  local value = redis.call('HGET', KEYS[1], ARGV[i])
  local gone = not value
  if value then
    local ok, a = pcall(cjson.decode, value)
    local ends = ok and type(a) == 'table' and a.ends
    if type(ends) == 'number' and ends ~= 0 and ends <= now then
      redis.call('HDEL', KEYS[1], ARGV[i])
      gone = true
    end
  end
  reply[#reply + 1] = gone and 1 or 0
end
return reply
