-- The batch: reads its input, decides group after group, writes what changed.
--
-- A limit is kind, postpaid, capacity, then
--   buckets          quantum, unit, rate, max_debt
--   fixed_window     period, 0, 0, 0
--   sliding windows  period, slot, 0, 0
--   requests of 0    0, 0, 0, 0, with the kind DENIED
-- A group is its mode (check, take or give back), its number of hits, and for each
-- hit the index of its key, the index of its limit, its cost and, for a give
-- back, the moment of its take. No two hits of a group have the same key.
-- Its status is 1 allowed, 0 denied, -1 a state cannot be read; after -1, and
-- for a give back, nothing about the hits follows.

local TAKE, GIVE_BACK = 1, 2 -- and 0 checks

-- requests of 0, as in step.go.
local function decide_denied(_, _, now, cost)
  return 0, cost < 0 and 0 or NEVER, 0, 0, now
end

local function change_nothing() return false end

local function read_limit(numbers, start)
  local l, a, b, c, d = {}, nil, nil, nil, nil
  l.kind, l.postpaid, l.capacity, a, b, c, d = unpack_doubles('<ddddddd', numbers, start)
  l.postpaid = l.postpaid == 1
  if l.kind <= LEAKY then
    l.quantum, l.unit, l.rate, l.max_debt = a, b, c, d
    l.full = l.capacity * l.unit
    l.decide, l.charge, l.give_back = decide_bucket, charge_bucket, give_back_bucket
  elseif l.kind == FIXED then
    l.period = a
    l.decide, l.charge, l.give_back = decide_fixed_window, charge_fixed_window, give_back_fixed_window
  elseif l.kind == SLIDING then
    l.period, l.slot = a, b
    l.decide, l.charge, l.give_back = decide_sliding, charge_sliding, give_back_sliding
  else
    l.decide, l.charge, l.give_back = decide_denied, change_nothing, change_nothing
  end
  return l
end

local clock = tonumber(ARGV[1])
if not clock then
  local time = redis.call('TIME')
  clock = time[1] * 1000000 + time[2]
end

local limits = {}
for start = 1, #ARGV[2], 56 do
  limits[#limits + 1] = read_limit(ARGV[2], start)
end

local values = {}
for from = 1, #KEYS, MAX_UNPACKED do
  local to = min(from + MAX_UNPACKED - 1, #KEYS)
  local got = redis.call('MGET', unpack(KEYS, from, to))
  if to == #KEYS and from == 1 then
    values = got
  else
    for i = 1, #got do values[from + i - 1] = got[i] end
  end
end

local states = {}  -- by index of the key; false where it cannot be read
local writers = {} -- by index of the key: the limit that wrote its state last
local reply, filled = {}, 0

-- The hits of the group at hand.
local keys, group, costs, moments = {}, {}, {}, {}

-- Reads the n hits of a group, which begin at this byte. Returns where the next
-- group begins, and whether all states can be read.
local function read_group(input, at, n)
  local readable = true
  for i = 1, n do
    local k, l
    k, l, costs[i], moments[i], at = unpack_doubles('<dddd', input, at)
    keys[i], group[i] = k, limits[l]
    local kind = limits[l].kind
    if kind ~= DENIED then
      if states[k] == nil then states[k] = read_state(kind, values[k]) end
      readable = readable and states[k]
    end
  end
  return at, readable
end

-- Puts what each hit would get into the reply. Returns the group's status.
local function decide_group(n)
  local status = 1
  for i = 1, n do
    local l, out = group[i], filled + (i - 1) * 5
    reply[out + 1], reply[out + 2], reply[out + 3], reply[out + 4], reply[out + 5] =
      l.decide(l, states[keys[i]], clock, costs[i])
    if not reply[out + 1] then
      for undo = filled + 1, out + 5 do reply[undo] = nil end
      return -1
    end
    if reply[out + 2] ~= 0 then status = 0 end
  end
  return status
end

-- What remains of a state that was written just now, and how long until it is
-- full.
local function written(l, s)
  if s.expires == 0 then return l.capacity, 0 end
  local reset = s.expires - clock
  if l.kind <= LEAKY then return floor(max(0, l.full - s.level) / l.unit), reset end
  return max(0, l.capacity - s.level), reset
end

-- Charges a decided group: all of it if it is allowed, else what is postpaid.
local function charge_group(n, allowed)
  for i = 1, n do
    local l, s, cost, out = group[i], states[keys[i]], costs[i], filled + (i - 1) * 5
    local due = cost ~= 0 and l.kind ~= DENIED and (allowed or l.postpaid and cost > 0)
    if due then
      if l.charge(l, s, clock, cost) then
        writers[keys[i]] = l
        if reply[out + 2] ~= 0 then
          -- A postpaid charge that came when nothing remained has moved the
          -- moment from which there will be something again.
          local _, retry = l.decide(l, s, clock, 0)
          reply[out + 2] = retry
        end
        reply[out + 1], reply[out + 3] = written(l, s)
      end
    end
  end
end

local function give_back_group(n)
  for i = 1, n do
    local l, s = group[i], states[keys[i]]
    if costs[i] > 0 and l.give_back(l, s, clock, moments[i], costs[i]) then
      writers[keys[i]] = l
    end
  end
end

local input, at = ARGV[3], 1
while at < #input do
  local mode, n, status, readable
  mode, n, at = unpack_doubles('<dd', input, at)
  at, readable = read_group(input, at, n)
  filled = filled + 1
  local head = filled
  if not readable then
    status = -1
  elseif mode == GIVE_BACK then
    give_back_group(n)
    status = 1
  else
    status = decide_group(n)
    if mode == TAKE and status >= 0 then charge_group(n, status == 1) end
    if status >= 0 then filled = filled + n * 5 end
  end
  reply[head] = status
end

-- Expiry counts on this server's own clock, which may be behind the key's. A
-- clock that a test injected stands still, while the server's does not.
local spare = ARGV[1] == '' and 1 or 3600000
for k, l in pairs(writers) do
  local s = states[k]
  if s.expires > 0 then
    redis.call('SET', KEYS[k], write_state(l.kind, s), 'PX', ceil((s.expires - clock) / 1000) + spare)
  elseif values[k] then
    redis.call('DEL', KEYS[k])
  end
end
return reply
