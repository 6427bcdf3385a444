-- Removes assignments that have ended.
--
-- KEYS[1]  the assignments, see append.lua
-- ARGV     2 for each of them: the text of the subject, and the etag

for i = 1, #ARGV, 2 do
  local held = redis.call('HGET', KEYS[1], ARGV[i])
  if held and held:match('^%S+') == ARGV[i + 1] then redis.call('HDEL', KEYS[1], ARGV[i]) end
end
return 0
