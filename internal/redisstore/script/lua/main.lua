-- The main part: reads the input, decides line after line, writes what changed.
--
-- A limit is kind, charging, capacity, then
--   buckets          quantum, unit, rate, max_debt
--   fixed_window     period, 0, 0, 0
--   sliding windows  period, slot, 0, 0
--   requests of 0    period of a fixed_window or 0, 0, 0, 0, with the kind DENIED
-- A line is a group of hits that was asked for count times: mode (check, take,
-- give back or take by role), count, its number of hits, at least one, and for
-- each hit the index of its key, the index of its limit and its cost. A line
-- that gives back has a count of 1, and after each cost the moment of the take;
-- one that takes by role has after each cost the role: 0 enforced, -1 aside, or
-- the number of a quota, whose hits follow each other. No two hits of a group
-- have the same key.
--
-- The copies of a line are decided one after the other. What came of it is, for
-- each copy, one of
--   for each hit   remaining * 8 + n, then the first n, 1 to 4, of reset_after,
--                  retry_after, wait, and at less the clock; the others are 0.
--                  Of a hit that was denied and charged all the same, remaining
--                  is what was so before: after it there is nothing
--   UNREADABLE     a state cannot be read; nothing of the copy was charged
--   SAME           this copy and all further ones got what the one before got
-- and for a group given back DONE or UNREADABLE.

local TAKE, GIVE_BACK, TAKE_BY_ROLE = 1, 2, 3 -- 0 checks
local BUCKET, LEAKY, FIXED, SLIDING = 1, 2, 3, 4 -- and 5 denies
local UNREADABLE, SAME, DONE = -1, 0, 8 -- no decision's first number
local MAX_UNPACKED = 1000 -- Lua's stack holds some 8,000

-- requests of 0, as in step.go.
local function denied(period)
  local reset = period > 0 and period - clock % period or 0
  local function decide(_, cost) return 0, cost < 0 and 0 or NEVER, reset, 0, clock end
  local function change_nothing() end
  return decide, change_nothing, change_nothing
end

local function new_limit(start)
  local kind, charging, capacity, a, b, c, d = unpack_doubles('<ddddddd', ARGV[2], start)
  local decide, charge, give_back
  if kind <= LEAKY then
    decide, charge, give_back = token_bucket(kind == LEAKY, charging, capacity, a, b, c, d)
  elseif kind == FIXED then
    decide, charge, give_back = fixed_window(charging, capacity, a)
  elseif kind == SLIDING then
    decide, charge, give_back = sliding_window(charging, capacity, a, b)
  else
    decide, charge, give_back = denied(a)
  end
  return {decide = decide, charge = charge, give_back = give_back, charges_use = charging ~= CHARGES_ADMITTED}
end

local limits = {}
for start = 1, #ARGV[2], 56 do
  limits[#limits + 1] = new_limit(start)
end

local values -- by index of the key
if #KEYS <= MAX_UNPACKED then
  values = call('MGET', unpack(KEYS))
else
  values = {}
  for from = 1, #KEYS, MAX_UNPACKED do
    local got = call('MGET', unpack(KEYS, from, math.min(from + MAX_UNPACKED - 1, #KEYS)))
    for i = 1, #got do values[from + i - 1] = got[i] end
  end
end

local expiries = {} -- by index of the key, of those whose state was written
local mended = 0 -- of those, how many a wrong clock had written
local reply, filled = {clock, 0}, 2

local function put(remaining, retry, reset, wait, at)
  local late = at - clock
  local n = late ~= 0 and 4 or wait ~= 0 and 3 or retry ~= 0 and 2 or 1
  reply[filled + 1], reply[filled + 2] = remaining * 8 + n, reset
  if n > 1 then
    reply[filled + 3] = retry
    if n > 2 then reply[filled + 4] = wait end
    if n > 3 then reply[filled + 5] = late end
  end
  filled = filled + 1 + n
end

local function put_mark(mark)
  filled = filled + 1
  reply[filled] = mark
end

-- Charges a hit of a group, allowed or not, if it is due. Returns whether that
-- wrote the state, and what its decision says afterwards.
local function charge(k, l, cost, allowed, remaining, retry, reset, at, level, rest)
  if cost == 0 or not (allowed and retry == 0) and not (l.charges_use and cost > 0) then
    return false, remaining, retry, reset
  end
  local value, expires, left = l.charge(cost, level, at, values[k], rest)
  if not expires then return false, remaining, retry, reset end
  values[k], expiries[k] = value, expires
  if retry ~= 0 then
    -- The charge of what was used has moved the moment from which a peek is
    -- allowed again. A level that can grow no further may not show it.
    local _, again = l.decide(value, 0)
    if again ~= 0 then retry = again end
    left = remaining
  end
  return true, left, retry, expires - clock
end

-- Lines of one hit: most are.
local function decide_hit(mode, count, k, l, cost)
  for copy = 1, count do
    local remaining, retry, reset, wait, at, level, rest = l.decide(values[k], cost)
    if not remaining and retry then
      -- A wrong clock wrote the state. It is mended in any mode, so only once.
      values[k], expiries[k], mended = retry, reset, mended + 1
      remaining, retry, reset, wait, at, level, rest = l.decide(values[k], cost)
    end
    local wrote = false
    if not remaining then
      put_mark(UNREADABLE)
    else
      if mode == TAKE then
        wrote, remaining, retry, reset = charge(k, l, cost, true, remaining, retry, reset, at, level, rest)
      end
      put(remaining, retry, reset, wait, at)
    end
    if not wrote and copy < count then return put_mark(SAME) end
  end
end

-- Makes what decides all other lines: those of several hits, and give-backs.
local function new_decide_group()
  local keys, of, costs, takens, roles = {}, {}, {}, {}, {}
  local remaining, retry, reset, wait, at, level, rest = {}, {}, {}, {}, {}, {}, {}

  local function read(mode, n, start)
    for i = 1, n do
      local l
      if mode <= TAKE then
        keys[i], l, costs[i], start = unpack_doubles('<ddd', ARGV[3], start)
      elseif mode == GIVE_BACK then
        keys[i], l, costs[i], takens[i], start = unpack_doubles('<dddd', ARGV[3], start)
      else
        keys[i], l, costs[i], roles[i], start = unpack_doubles('<dddd', ARGV[3], start)
      end
      of[i] = limits[l]
    end
    return start
  end

  -- The twin of GroupAllowed in role.go.
  local function are_roles_allowed(n)
    local quota, quota_allowed, some_allowed = 0, false, false
    for i = 1, n do
      local role, allowed = roles[i], retry[i] == 0
      if role == 0 and not allowed then return false end
      if role > 0 then
        if role ~= quota then
          some_allowed = some_allowed or quota_allowed
          quota, quota_allowed = role, true
        end
        quota_allowed = quota_allowed and allowed
      end
    end
    return quota == 0 or some_allowed or quota_allowed
  end

  -- Returns whether all states can be read, and whether the group is allowed.
  local function decide(mode, n)
    local allowed = true
    for i = 1, n do
      local k, l = keys[i], of[i]
      local cost = mode ~= GIVE_BACK and costs[i] or -1 -- which reads a state as a give-back does
      remaining[i], retry[i], reset[i], wait[i], at[i], level[i], rest[i] = l.decide(values[k], cost)
      if not remaining[i] and retry[i] then
        values[k], expiries[k], mended = retry[i], reset[i], mended + 1
        remaining[i], retry[i], reset[i], wait[i], at[i], level[i], rest[i] = l.decide(values[k], cost)
      end
      if not remaining[i] then return false end
      allowed = allowed and retry[i] == 0
    end
    if mode == TAKE_BY_ROLE then allowed = are_roles_allowed(n) end
    return true, allowed
  end

  local function take(n, allowed)
    local wrote_any = false
    for i = 1, n do
      local wrote
      wrote, remaining[i], retry[i], reset[i] =
        charge(keys[i], of[i], costs[i], allowed, remaining[i], retry[i], reset[i], at[i], level[i], rest[i])
      wrote_any = wrote_any or wrote
    end
    return wrote_any
  end

  local function give_back(n)
    for i = 1, n do
      local k = keys[i]
      if costs[i] > 0 then
        local value, expires = of[i].give_back(costs[i], level[i], at[i], values[k], rest[i], takens[i])
        if expires then values[k], expiries[k] = value, expires end
      end
    end
  end

  return function(mode, count, n, start)
    local after = read(mode, n, start)
    for copy = 1, count do
      local readable, allowed = decide(mode, n)
      local wrote = false
      if not readable then
        put_mark(UNREADABLE)
      elseif mode == GIVE_BACK then
        give_back(n)
        put_mark(DONE)
      else
        if mode ~= 0 then wrote = take(n, allowed) end
        for i = 1, n do put(remaining[i], retry[i], reset[i], wait[i], at[i]) end
      end
      if not wrote and copy < count then
        put_mark(SAME)
        break
      end
    end
    return after
  end
end

local decide_group
local input, start = ARGV[3], 1
while start < #input do
  local mode, count, n, k, l, cost = unpack_doubles('<dddddd', input, start)
  if n == 1 and mode <= TAKE then
    decide_hit(mode, count, k, limits[l], cost)
    start = start + 48
  else
    decide_group = decide_group or new_decide_group()
    start = decide_group(mode, count, n, start + 24)
  end
end

-- Expiry counts on this server's own clock, which may be behind the key's. A
-- clock that a test injected stands still, while the server's does not.
local spare = ARGV[4] and 3600000 or 1
local format = string.format
local last_ms, text -- windows of equal periods end together
for k, expires in pairs(expiries) do
  if values[k] then
    local left = expires - clock
    local ms = (left + -left % 1000) / 1000 + spare
    if ms ~= last_ms then
      last_ms = ms
      -- Redis is slower at turning a number into text, and %.0f is slower than
      -- %d, whose numbers may have 32 bits.
      local low = ms % 1000000000
      text = low == ms and format('%d', ms) or format('%d%09d', (ms - low) / 1000000000, low)
    end
    call('SET', KEYS[k], values[k], 'PX', text)
  else
    call('DEL', KEYS[k])
  end
end
reply[2] = mended
return reply
