-- The main part: reads the input, decides each request in turn, writes what changed.
--
-- A limit is algorithm, charging, capacity, the four of Limit.Numbers in Go, and how long it
-- blocks, in microseconds; with requests of 0 its algorithm is 0, except for a concurrency.
-- With a calendar its algorithm is CALENDAR, and after the capacity come the three of
-- Limit.Borders and Calendar.Moved. In place of charging stands minus Limit.Leeway if that
-- is above 0.
-- A request is a group of hits that was requested count times. It is: mode (check, take,
-- give back or take by role), count, its number of hits, at least one, and for each hit
-- the index of its key, the index of its limit and its cost. A give-back has a count of
-- 1, and after each cost the moment of the take. A take by role has after each cost the
-- role: 0 enforced, -1 aside, or the number of a quota, whose hits are adjacent. If some
-- hits may name holders, the mode is BY_HOLDER higher, and each hit ends with the length
-- of its holder, or 0, and the holder. No two hits of a request have the same key and
-- holder. If a take has an ID, the mode is RESERVES higher, and each hit ends with the
-- index of the bill's key, the index of the key of a reset, the limit's pace, and how long
-- the bill lasts.
-- The mode PAUSE is a take by role that charges nothing: its hits only start the pauses of
-- limits that deny.
-- To settle, a request of the mode SETTLE and a count of 1 has for each hit also the index
-- of the bill's key, the index of the key of a reset, the limit's pace, and how many units
-- of a level are a cost of 1. The result is DONE and for each hit 0, if it has no bill, or
-- its takes + 1, what was returned, what was added, what remains, and reset_after; or
-- UNREADABLE or ELSEWHEN.
--
-- The copies of a request are decided one after the other. The result is, for
-- each copy, one of
--   for each hit   reset_after * 8 + n, then the first n, 1 to 4, of remaining,
--                  retry_after, wait, and at minus the clock; the others are 0.
--                  For a hit that was denied and charged anyway, remaining is
--                  what remained before it: after it nothing remains
--   UNREADABLE     a state cannot be read; nothing of the copy was charged
--   ELSEWHEN, at   a limit by calendar needs the windows about the moment at; nothing of
--                  the copy was charged
--   SAME           this copy and all further ones got what the one before got
-- and for a request to give back DONE, UNREADABLE or ELSEWHEN.

local TAKE, GIVE_BACK, TAKE_BY_ROLE, BY_HOLDER, RESERVES, SETTLE, PAUSE = 1, 2, 3, 4, 8, 16, 32 -- 0 checks
local UNREADABLE, ELSEWHEN, SAME, DONE = -1, -2, 0, 8 -- never the first number of a decision
local MAX_UNPACKED = 1000 -- Lua's stack holds some 8,000

-- requests of 0, as in step.go.
makers[0] = function(_, _, period)
  local reset = period > 0 and period - clock % period or 0
  local function decide(_, cost) return 0, cost < 0 and 0 or NEVER, reset, 0, clock end
  local function change_nothing() end
  return decide, change_nothing, change_nothing
end

local function new_limit(start)
  local algorithm, charging, capacity, a, b, c, d, block = unpack_doubles('<dddddddd', ARGV[2], start)
  local leeway = 0
  if charging < 0 then leeway, charging = -charging, CHARGES_ADMITTED end
  local decide, charge, give_back, unit, releases, spare = makers[algorithm](charging, capacity, a, b, c, d, leeway)
  -- The sign of the costs that are charged whatever their request gets, or 0.
  local anyway = releases and -1 or charging ~= CHARGES_ADMITTED and 1 or 0
  local limit = {decide = decide, charge = charge, give_back = give_back, anyway = anyway, unit = unit or 1, capacity = capacity, spare = spare or 0}
  if block > 0 then add_pauses(limit, block) end
  return limit
end

local limits = {}
for start = 1, #ARGV[2], 64 do
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

local expiries = {} -- by index of the key, for keys whose state was written
local bills -- the steps on bills, once they are needed
local mended = 0 -- how many of these states a wrong clock had written
local reply, filled = {clock, 0}, 2

local function put(remaining, retry, reset, wait, at)
  local late = at - clock
  local n = late ~= 0 and 4 or wait ~= 0 and 3 or retry ~= 0 and 2 or 1
  reply[filled + 1], reply[filled + 2] = reset * 8 + n, remaining
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

-- Puts why a request is not decided: elsewhen is the moment whose windows it needs, or nil
-- if a state cannot be read.
local function put_undecided(elsewhen)
  put_mark(elsewhen and ELSEWHEN or UNREADABLE)
  if elsewhen then put_mark(elsewhen) end
end

-- Charges a hit of a request, allowed or not, if it is due. Returns whether that wrote
-- the state, what its decision says afterwards, and the hit's moment, if it differs from
-- at.
local function charge(k, l, cost, allowed, remaining, retry, reset, at, level, rest)
  if cost == 0 or not (allowed and retry == 0) and l.anyway * cost <= 0 then
    return false, remaining, retry, reset
  end
  local value, expires, left, moment = l.charge(cost, level, at, values[k], rest)
  if not expires then return false, remaining, retry, reset end
  values[k], expiries[k] = value, expires
  reset = left == l.capacity and 0 or expires - clock - l.spare
  if retry ~= 0 then
    -- The charge of what was used has moved the moment from which a peek is
    -- allowed again. A level that can grow no further may not show it.
    local _, again = l.decide(value, 0)
    if again ~= 0 then retry = again end
    left = remaining
  end
  return true, left, retry, reset, moment
end

-- Starts the pause of a hit of a take that its limit denies, if that has a block. Returns
-- whether it did.
local function start_pause(k, l, cost, retry, wait)
  if not l.block or cost <= 0 or retry <= 0 or wait > 0 then return false end
  local value, expires = l.pause(values[k])
  if not value then return false end
  values[k], expiries[k] = value, expires
  return true
end

-- Returns what the decision on a hit says that has started a pause.
local function paused(block, retry, reset)
  return 0, retry > block and retry or block, reset > block and reset or block, 2 * block + 1
end

-- Requests of one hit, as most are.
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
      put_undecided(reset)
    else
      if mode == TAKE then
        wrote, remaining, retry, reset = charge(k, l, cost, true, remaining, retry, reset, at, level, rest)
        if retry ~= 0 and start_pause(k, l, cost, retry, wait) then
          wrote, remaining, retry, reset, wait = true, paused(l.block, retry, reset)
        end
      end
      put(remaining, retry, reset, wait, at)
    end
    if not wrote and copy < count then return put_mark(SAME) end
  end
end

-- Makes the function that decides all other requests: those of several hits, and
-- give-backs.
local function new_decide_hits()
  local keys, of, costs, takens, roles, whos, billed = {}, {}, {}, {}, {}, {}, {}
  local remaining, retry, reset, wait, at, level, rest = {}, {}, {}, {}, {}, {}, {}

  local function read(mode, n, start, reserves, pending, wrote)
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
      if pending then
        local size
        size, start = unpack_doubles('<d', ARGV[3], start)
        whos[i] = {key = KEYS[keys[i]], holder = ARGV[3]:sub(start, start + size - 1), pending = pending, wrote = wrote}
        start = start + size
      end
      if reserves then
        local h = {}
        h.bill, h.lost, h.pace, h.lasts, start = unpack_doubles('<dddd', ARGV[3], start)
        billed[i] = h
      end
    end
    return start
  end

  -- The twin of GroupAllowed in group.go.
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

  -- Returns whether all hits can be decided, and whether the request is allowed, or else
  -- what put_undecided needs.
  local function decide(mode, n)
    local allowed = true
    for i = 1, n do
      local k, l = keys[i], of[i]
      -- A cost of -1 reads a state as a give-back does.
      local cost = mode ~= GIVE_BACK and costs[i] or -1
      remaining[i], retry[i], reset[i], wait[i], at[i], level[i], rest[i] = l.decide(values[k], cost, whos[i])
      if not remaining[i] and retry[i] then
        values[k], expiries[k], mended = retry[i], reset[i], mended + 1
        remaining[i], retry[i], reset[i], wait[i], at[i], level[i], rest[i] = l.decide(values[k], cost, whos[i])
      end
      if not remaining[i] then return false, reset[i] end
      if billed[1] and not bills.find(billed[i]) then return false end
      allowed = allowed and retry[i] == 0
    end
    if mode == TAKE_BY_ROLE then allowed = are_roles_allowed(n) end
    return true, allowed
  end

  local function take(n, allowed)
    local wrote_any = false
    for i = 1, n do
      local wrote, moment
      wrote, remaining[i], retry[i], reset[i], moment =
        charge(keys[i], of[i], costs[i], allowed, remaining[i], retry[i], reset[i], at[i], level[i], rest[i])
      if retry[i] ~= 0 and start_pause(keys[i], of[i], costs[i], retry[i], wait[i]) then
        wrote_any = true
        remaining[i], retry[i], reset[i], wait[i] = paused(of[i].block, retry[i], reset[i])
      end
      wrote_any = wrote_any or wrote
      if moment then at[i] = moment end
      -- Holders have no bills.
      if wrote and billed[1] and costs[i] > 0 and of[i].anyway >= 0 then
        bills.reserve(billed[i], at[i], costs[i], keys[i], of[i], level[i])
      end
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
    local after
    local only_pauses = mode == PAUSE
    if only_pauses then mode = TAKE_BY_ROLE end
    local reserves = mode >= RESERVES
    if reserves then
      bills = bills or new_bills(limits, values, expiries, put_mark, put_undecided)
      mode = mode - RESERVES
    elseif billed[1] then
      billed = {}
    end
    if mode >= BY_HOLDER then
      mode = mode - BY_HOLDER
      after = read(mode, n, start, reserves, {}, {})
    else
      if whos[1] then whos = {} end
      after = read(mode, n, start, reserves)
    end
    for copy = 1, count do
      local decided, allowed = decide(mode, n)
      local wrote = false
      if not decided then
        put_undecided(allowed)
      elseif mode == GIVE_BACK then
        give_back(n)
        put_mark(DONE)
      else
        if mode ~= 0 then wrote = take(n, allowed and not only_pauses) end
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

local decide_hits
local input, start = ARGV[3], 1
while start < #input do
  local mode, count, n, k, l, cost = unpack_doubles('<dddddd', input, start)
  if n == 1 and mode <= TAKE then
    decide_hit(mode, count, k, limits[l], cost)
    start = start + 48
  elseif mode == SETTLE then
    local of_wrong_clocks
    bills = bills or new_bills(limits, values, expiries, put_mark, put_undecided)
    start, of_wrong_clocks = bills.settle(n, start + 24)
    mended = mended + of_wrong_clocks
  else
    decide_hits = decide_hits or new_decide_hits()
    start = decide_hits(mode, count, n, start + 24)
  end
end

-- Keys expire by this server's own clock, which may be behind the key's. A clock that a
-- test injected stands still, while the server's does not.
local spare = ARGV[4] and 3600000 or 1
local format = string.format
local last_ms, text -- windows of equal periods end together
for k, expires in pairs(expiries) do
  local value = values[k]
  if value then
    local left = (value == HOLDERS and HOLDERS[KEYS[k]] or expires) - clock
    local ms = (left + -left % 1000) / 1000 + spare
    if ms ~= last_ms then
      last_ms = ms
      -- Redis is slower at turning a number into text, and %.0f is slower than
      -- %d, which is limited to 32 bits.
      local low = ms % 1000000000
      text = low == ms and format('%d', ms) or format('%d%09d', (ms - low) / 1000000000, low)
    end
    if value == HOLDERS then
      call('PEXPIRE', KEYS[k], text)
    else
      call('SET', KEYS[k], value, 'PX', text)
    end
  else
    call('DEL', KEYS[k])
  end
end
reply[2] = mended
return reply
