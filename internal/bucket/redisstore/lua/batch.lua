-- The batch: reads its input, decides group after group, writes what changed.
--
-- A limit is kind, postpaid, capacity, then
--   buckets          quantum, unit, rate, max_debt
--   fixed_window     period, 0, 0, 0
--   sliding windows  period, slot, 0, 0
--   requests of 0    0, 0, 0, 0, with the kind DENIED
-- A group is mode (check, take or give back), its number of hits, and for each
-- hit the index of its key, the index of its limit, its cost and, for a give
-- back, the moment of its take. No two hits of a group have the same key.
-- Its status is 1 allowed, 0 denied, -1 a state cannot be read; after -1, and
-- for a give back, nothing about the hits follows.

local CHECK, TAKE, GIVE_BACK = 0, 1, 2

local function read_limit(numbers, at)
  local l, a, b, c, d = {}, nil, nil, nil, nil
  l.kind, l.postpaid, l.capacity, a, b, c, d = unpack_doubles('<ddddddd', numbers, at)
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
    l.decide = function(_, _, now, cost) return 0, cost < 0 and 0 or NEVER, 0, 0, now end
    l.charge, l.give_back = function() end, function() end
  end
  return l
end

local clock = tonumber(ARGV[1])
if not clock then
  local time = redis.call('TIME')
  clock = time[1] * 1000000 + time[2]
end

local limits = {}
for at = 1, #ARGV[2], 56 do
  limits[#limits + 1] = read_limit(ARGV[2], at)
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
local states, writers = {}, {} -- by index of the key; writers: the limit that changed it last
local reply, filled = {}, 0

local input, at = ARGV[3], 1
local key, limit, cost, moment = {}, {}, {}, {} -- of the group's hits
while at < #input do
  local mode, n
  mode, n, at = unpack_doubles('<dd', input, at)
  local status = 1
  for i = 1, n do
    local k, l
    k, l, cost[i], moment[i], at = unpack_doubles('<dddd', input, at)
    key[i], limit[i] = k, limits[l]
    local kind = limit[i].kind
    if kind ~= DENIED then
      if states[k] == nil then states[k] = read_state(kind, values[k]) end
      if not states[k] then status = -1 end
    end
  end
  filled = filled + 1
  local head = filled
  if status == 1 and mode == GIVE_BACK then
    for i = 1, n do
      if cost[i] > 0 and limit[i].give_back(limit[i], states[key[i]], clock, moment[i], cost[i]) then
        writers[key[i]] = limit[i]
      end
    end
  elseif status == 1 then
    for i = 1, n do
      local l, out = limit[i], filled + (i - 1) * 5
      reply[out + 1], reply[out + 2], reply[out + 3], reply[out + 4], reply[out + 5] =
        l.decide(l, states[key[i]], clock, cost[i])
      if not reply[out + 1] then
        status = -1
        break
      end
      if reply[out + 2] ~= 0 then status = 0 end
    end
  end
  if status >= 0 and mode ~= GIVE_BACK then
    for i = 1, n do
      local l, s = limit[i], states[key[i]]
      local due = status == 1 or l.postpaid and cost[i] > 0
      if mode == TAKE and cost[i] ~= 0 and due and l.kind ~= DENIED then
        if l.charge(l, s, clock, cost[i]) then writers[key[i]] = l end
        local out = filled + (i - 1) * 5
        local remaining, retry, reset = l.decide(l, s, clock, 0)
        reply[out + 1], reply[out + 3] = remaining, reset
        -- A postpaid charge that came when nothing remained has moved the
        -- moment from which there will be something again.
        if reply[out + 2] ~= 0 then reply[out + 2] = retry end
      end
    end
    filled = filled + n * 5
  elseif status < 0 then
    for out = filled + 1, filled + n * 5 do reply[out] = nil end
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
