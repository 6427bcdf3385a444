-- Keeps the register of the daemons that share a prefix.
--
-- KEYS[1]  the register
-- ARGV[1]  empty; tests put the clock here, in microseconds
-- ARGV[2]  join: add or renew the caller's entry; look: say what join would, and
--          add nobody; leave: remove it; list: read
-- ARGV[3]  the caller's entry, a JSON object whose up is its age in ms; list
--          does not look at it
-- reply    the moment in ms, how many entries disagree with a caller that
--          joins or looks, then every live entry as a JSON object, those that
--          disagree first
--
-- A caller that disagrees with a live entry is not added, so all entries of a
-- register agree. Its value is a JSON array of entries; moments are whole ms
-- since the epoch, since cjson writes 14 digits of a number and a microsecond
-- would need 16. It is never an empty array, which cjson would write as an
-- object: without entries there is no key. What is no entry is passed over, so
-- that a foreign value reads as an empty register.

local LIFE = 7000 -- ms without renewal after which an entry is gone
local MAX_ENTRIES = 10000
local MAX_FORMATS = 16

local floor, min, max = math.floor, math.min, math.max

-- Whether n is a number that cjson writes exactly; NaN is not.
local function is_whole(n)
  return type(n) == 'number' and n >= 0 and n < 1e14 and n % 1 == 0
end

local function is_text(s)
  return type(s) == 'string' and #s <= 255 and not s:find('%c')
end

-- The entry in a decoded value, without fields that are unknown here; nil if
-- it is none.
local function read_entry(e)
  if type(e) ~= 'table' or type(e.reads) ~= 'table' then return nil end
  local reads = {}
  for i = 1, min(#e.reads, MAX_FORMATS) do
    if is_whole(e.reads[i]) then reads[#reads + 1] = e.reads[i] end
  end
  local good = #reads > 0
    and is_text(e.id) and is_text(e.address) and is_text(e.version) and is_text(e.rules)
    and is_whole(e.hash_tags) and is_whole(e.state_format)
    and is_whole(e.started) and is_whole(e.seen)
  return good and {
    id = e.id, address = e.address, version = e.version, rules = e.rules,
    hash_tags = e.hash_tags, state_format = e.state_format, reads = reads,
    started = e.started, seen = e.seen,
  } or nil
end

-- The live entries in value but that of id, and whether one was seen ahead of
-- now.
local function read_others(value, id, now)
  local others, ahead = {}, false
  local ok, list = pcall(cjson.decode, value) -- value is false without a key
  if not ok or type(list) ~= 'table' then return others, ahead end
  for i = 1, min(#list, MAX_ENTRIES) do
    local e = read_entry(list[i])
    if e then
      -- A promoted replica's clock may be behind, and any clock be set back.
      ahead = ahead or e.seen > now
      e.started, e.seen = min(e.started, now), min(e.seen, now)
      if e.id ~= id and now - e.seen < LIFE then others[#others + 1] = e end
    end
  end
  return others, ahead
end

local function can_read(e, format)
  for _, f in ipairs(e.reads) do
    if f == format then return true end
  end
  return false
end

local function agree(a, b)
  return a.hash_tags == b.hash_tags
    and can_read(a, b.state_format) and can_read(b, a.state_format)
end

-- Expiry counts on this server's own clock. One that a test injected stands
-- still, while the server's does not.
local function write_register(entries, now)
  local spare = ARGV[1] == '' and 0 or 3600000
  local newest = 0
  for _, e in ipairs(entries) do newest = max(newest, e.seen) end
  if #entries == 0 then
    redis.call('DEL', KEYS[1])
  else
    redis.call('SET', KEYS[1], cjson.encode(entries), 'PX', newest + LIFE - now + spare)
  end
end

local now = tonumber(ARGV[1])
if now then
  now = floor(now / 1000)
else
  local time = redis.call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end

local action, own, id = ARGV[2], nil, nil
if action ~= 'list' then
  own = cjson.decode(ARGV[3])
  own.started, own.seen = max(0, now - own.up), now
  own = read_entry(own)
  if not own then return redis.error_reply('ERR the entry of the caller is none') end
  id = own.id
end

-- MGET gives no error where the key holds another type.
local others, ahead = read_others(redis.call('MGET', KEYS[1])[1], id, now)

local agreeing, disagreeing = {}, {}
for _, e in ipairs(others) do
  local list = (action == 'leave' or action == 'list' or agree(own, e)) and agreeing or disagreeing
  list[#list + 1] = e
end

if action == 'leave' then
  write_register(others, now)
elseif action == 'join' and #disagreeing == 0 and #others < MAX_ENTRIES then
  agreeing[#agreeing + 1] = own
  write_register(agreeing, now)
elseif action ~= 'list' and ahead then
  write_register(others, now) -- or they would live until the clock gets there
end

local reply = {now, #disagreeing}
for _, list in ipairs({disagreeing, agreeing}) do
  for _, e in ipairs(list) do reply[#reply + 1] = cjson.encode(e) end
end
return reply
