-- Keeps the register of the daemons that share a prefix.
--
-- KEYS[1]  the register: a text with a line for each daemon
-- ARGV[1]  empty; in tests the clock, in microseconds
-- ARGV[2]  join: add or renew the caller, unless it disagrees with a live daemon; check:
--          reply as join would, and add nobody; leave: remove it; list: read
-- ARGV[3]  the caller: its age in ms, its ID, its hash tags, its state format, the
--          formats that it reads as ",1,2,", and its registration as JSON
-- reply    the moment in ms, how many daemons disagree with a caller that joins or
--          checks, then the lines of all live daemons, those that disagree first
--
-- A line is "<started> <seen> <ID> <hash tags> <state format> <formats> <JSON>", with
-- moments in ms since the epoch. Anything else is skipped.

local LIFE = 7000 -- ms without renewal after which a daemon is gone

local clock, action, up, id, tags, format, reads, registration = unpack(ARGV)
local time = redis.call('TIME')
local now = math.floor((tonumber(clock) or time[1] * 1000000 + time[2]) / 1000)

local function agrees(other_tags, other_format, other_reads)
  return action == 'list' or action == 'leave' or other_tags == tags
    and reads:find(',' .. other_format .. ',', 1, true) and other_reads:find(',' .. format .. ',', 1, true)
end

local lines, newest = {}, 0
local function add(at, started, seen, rest)
  table.insert(lines, at, string.format('%.0f %.0f %s', started, seen, rest))
  newest = math.max(newest, seen)
end

local disagreeing = 0
local text = redis.call('MGET', KEYS[1])[1] or '' -- without an error where it has another type
for line in text:gmatch('[^\n]+') do
  local started, seen, rest, other, t, f, r = line:match('^(%d+) (%d+) ((%x+) (%d+) (%d+) ([%d,]+) .+)$')
  -- A clock that went back must not have a daemon live until it gets there again.
  started, seen = math.min(tonumber(started) or 0, now), math.min(tonumber(seen) or 0, now)
  if now - seen < LIFE and other ~= id then
    if not agrees(t, f, r) then disagreeing = disagreeing + 1 end
    add(agrees(t, f, r) and #lines + 1 or 1, started, seen, rest)
  end
end

if action == 'join' and disagreeing == 0 then
  add(1, math.max(0, now - up), now, table.concat({id, tags, format, reads, registration}, ' '))
end
if action ~= 'list' and #lines == 0 then
  redis.call('DEL', KEYS[1])
elseif action ~= 'list' then
  -- Keys expire by this server's own clock, which runs while a test's clock stands.
  redis.call('SET', KEYS[1], table.concat(lines, '\n'), 'PX', newest + LIFE - now + (clock == '' and 0 or 3600000))
end
table.insert(lines, 1, disagreeing)
table.insert(lines, 1, now)
return lines
