-- Keeps the register of the daemons that share a prefix.
--
-- KEYS[1]  the register
-- ARGV[1]  empty; in tests the clock, in microseconds
-- ARGV[2]  join: add or renew the caller's registration; look: reply as join
--          would, and add nobody; leave: remove it; list: read
-- ARGV[3]  the caller's registration, a JSON object whose up is its age in ms;
--          list does not read it
-- reply    the moment in ms, how many registrations disagree with a caller that
--          joins or looks, then every live registration as a JSON object, those
--          that disagree first
--
-- A caller that disagrees with a live registration is not added, so all that are
-- in a register agree. Its value is a JSON array of registrations. Moments are
-- whole ms since the epoch: cjson writes 14 digits of a number, and microseconds
-- need 16. The array is never empty, since cjson would write that as an object:
-- without registrations there is no key. Other elements are skipped, so that a
-- foreign value reads as an empty register.

local LIFE = 7000 -- ms without renewal after which a registration is gone
local MAX_REGISTRATIONS = 10000
local MAX_FORMATS = 16

local floor, min, max = math.floor, math.min, math.max

-- Whether n is a number that cjson writes exactly; NaN is not.
local function is_whole(n)
  return type(n) == 'number' and n >= 0 and n < 1e14 and n % 1 == 0
end

local function is_text(s)
  return type(s) == 'string' and #s <= 255 and not s:find('%c')
end

-- The registration in a decoded value, without the fields of later versions; nil
-- if it is not a registration.
local function read_registration(e)
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

-- The live registrations in value without that of id, and whether one was seen
-- later than now.
local function read_others(value, id, now)
  local others, ahead = {}, false
  local ok, list = pcall(cjson.decode, value) -- value is false without a key
  if not ok or type(list) ~= 'table' then return others, ahead end
  for i = 1, min(#list, MAX_REGISTRATIONS) do
    local e = read_registration(list[i])
    if e then
      -- A promoted replica's clock may be behind, and any clock may be set back.
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

-- Keys expire by this server's own clock, which runs while a test's clock stands.
local function write_register(registrations, now)
  local spare = ARGV[1] == '' and 0 or 3600000
  local newest = 0
  for _, e in ipairs(registrations) do newest = max(newest, e.seen) end
  if #registrations == 0 then
    redis.call('DEL', KEYS[1])
  else
    redis.call('SET', KEYS[1], cjson.encode(registrations), 'PX', newest + LIFE - now + spare)
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
  own = read_registration(own)
  if not own then return redis.error_reply('ERR the registration of the caller cannot be read') end
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
elseif action == 'join' and #disagreeing == 0 and #others < MAX_REGISTRATIONS then
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
