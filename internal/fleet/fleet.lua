-- Keeps the register of the daemons that share a prefix.
--
-- KEYS[1]  the register
-- KEYS[2]  the roll: who was in the register lately
-- ARGV[1]  empty; in tests the clock, in microseconds
-- ARGV[2]  join: add or renew the caller's registration; look: reply as join
--          would, and add nobody; leave: remove it; list: read
-- ARGV[3]  the caller's registration, a JSON object whose up is its age in ms;
--          list does not read it
-- ARGV[4]  the name that a new roll gets from the caller
-- ARGV[5]  the name of the roll that the caller knows, or empty
-- ARGV[6]  for how long it surely was there, in ms
-- ARGV[7]  the number of the caller's sign-in
-- reply    the moment in ms, how many registrations disagree with a caller that
--          joins or looks, the roll, then every live registration as a JSON
--          object, those that disagree first
--
-- Whoever changes assignments waits for the daemons of the roll. It does not
-- trust this clock, which may jump: it takes a daemon for gone once it has seen
-- the same number of a sign-in for LIFE by its own. So the roll keeps daemons
-- longer than the register does. What it cannot know is whom a lost register
-- had. So a roll has a name, which shows that it is the same one, and says how
-- long it surely has been there; after a loss it gets another name. Nor does a
-- node know, once it is promoted, which sign-ins its master had last. So the name
-- ends with the node's replication ID, which a node changes when it is promoted or
-- started: a roll that was written elsewhere has another name here, and keeps its
-- lines. It is a text: its name, that time in ms, then a line for each daemon: its
-- ID, the number of its sign-in, and when that was.
--
-- A caller that disagrees with a live registration is not added, so all that are
-- in a register agree. Its value is a JSON array of registrations. Moments are
-- whole ms since the epoch: cjson writes 14 digits of a number, and microseconds
-- need 16. The array is never empty, since cjson would write that as an object:
-- without registrations there is no key. Other elements are skipped, so that a
-- foreign value reads as an empty register.

local LIFE = 7000 -- ms without renewal after which a registration is gone
local LINGER = 60000 -- the same for a line of the roll
local MAX_REGISTRATIONS = 10000
local MAX_FORMATS = 16
local PLAIN_NAME = 16 -- digits of a roll's name before those of the node

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
    zones = is_text(e.zones) and e.zones or '',
    started = e.started, seen = e.seen,
  } or nil
end

-- The live registrations in value without that of id, whether one was seen later
-- than now, and whether id is live.
local function read_others(value, id, now)
  local others, ahead, is_live = {}, false, false
  local ok, list = pcall(cjson.decode, value) -- value is false without a key
  if not ok or type(list) ~= 'table' then return others, ahead, is_live end
  for i = 1, min(#list, MAX_REGISTRATIONS) do
    local e = read_registration(list[i])
    if e then
      -- A promoted replica's clock may be behind, and any clock may be set back.
      ahead = ahead or e.seen > now
      e.started, e.seen = min(e.started, now), min(e.seen, now)
      if now - e.seen < LIFE then
        if e.id == id then is_live = true else others[#others + 1] = e end
      end
    end
  end
  return others, ahead, is_live
end

-- The roll in value; without one its name is empty.
local function read_roll(value, now)
  local roll = {name = '', age = 0, lines = {}, is_empty = true}
  if type(value) ~= 'string' then return roll end
  local name, age = value:match('^(%x+) (%d+)\n')
  if not name or #age > 15 then return roll end
  roll.name, roll.age = name, tonumber(age)
  for id, number, seen in value:gmatch('\n(%x+) (%d+) (%d+)') do
    roll.is_empty = false
    seen = min(tonumber(seen), now)
    if now - seen < LINGER then roll.lines[id] = {number = number, seen = seen} end
  end
  return roll
end

-- This node's replication ID; empty if the caller may not ask for it.
local function replication_id()
  local info = redis.pcall('INFO', 'replication')
  return type(info) == 'string' and info:match('master_replid:(%x+)') or ''
end

-- The name of a roll on this node.
local function name_here(name)
  local id = replication_id()
  return id == '' and name or name:sub(1, PLAIN_NAME) .. id
end

-- Whether a roll surely has all daemons that were in the register for the last
-- LIFE: one of them still is, or all have left it.
local function goes_on(roll, others, own_is_live)
  if roll.name == '' then return false end
  if roll.is_empty or own_is_live then return true end
  for _, e in ipairs(others) do
    if roll.lines[e.id] then return true end
  end
  return false
end

local function roll_text(roll)
  local lines = {string.format('%s %.0f\n', roll.name, roll.age)}
  for id, line in pairs(roll.lines) do
    lines[#lines + 1] = string.format('%s %s %.0f', id, line.number, line.seen)
  end
  return table.concat(lines, '\n')
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

-- MGET gives no error where a key holds another type.
local values = redis.call('MGET', KEYS[1], KEYS[2])
local others, ahead, own_is_live = read_others(values[1], id, now)
local roll = read_roll(values[2], now)
if roll.name ~= '' then
  local name = name_here(roll.name)
  if name ~= roll.name then roll.name, roll.age = name, 0 end
end

local agreeing, disagreeing = {}, {}
for _, e in ipairs(others) do
  local list = (action == 'leave' or action == 'list' or agree(own, e)) and agreeing or disagreeing
  list[#list + 1] = e
end

-- The caller says for how long it has known a roll.
local function note_age()
  if roll.name == ARGV[5] then roll.age = max(roll.age, tonumber(ARGV[6])) end
end

local function write_roll()
  redis.call('SET', KEYS[2], roll_text(roll), 'PX', ARGV[1] == '' and LINGER or LINGER + 3600000)
end

if action == 'leave' then
  write_register(others, now)
  if roll.name ~= '' then
    note_age()
    roll.lines[id] = nil
    write_roll()
  end
elseif action == 'join' and #disagreeing == 0 and #others < MAX_REGISTRATIONS then
  if not goes_on(roll, others, own_is_live) then roll = {name = name_here(ARGV[4]), age = 0, lines = {}} end
  note_age()
  roll.lines[id] = {number = ARGV[7], seen = now}
  write_roll()
  agreeing[#agreeing + 1] = own
  write_register(agreeing, now)
elseif action ~= 'list' and ahead then
  write_register(others, now) -- or they would live until the clock gets there
end

local reply = {now, #disagreeing, roll.name == '' and '' or roll_text(roll)}
for _, list in ipairs({disagreeing, agreeing}) do
  for _, e in ipairs(list) do reply[#reply + 1] = cjson.encode(e) end
end
return reply
