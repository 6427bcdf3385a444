-- fixed_window; the twin of fixed_window.go.

local function window_count(s, clock)
  if clock >= s.expires then return 0, clock end
  return s.level, max(clock, s.last)
end

-- The end of the window that contains at.
local function window_end(l, at)
  return (floor(at / l.period) + 1) * l.period
end

local function decide_fixed_window(l, s, clock, cost)
  local count, now = window_count(s, clock)
  local remaining, retry, reset = max(0, l.capacity - count), 0, 0
  if count > 0 then reset = s.expires - clock end
  local claim = claim_of(l, cost)
  if claim > l.capacity then
    retry = NEVER
  elseif claim > remaining then
    retry = s.expires - clock
  end
  return remaining, retry, reset, 0, now
end

local function write_fixed_window(l, s, now, count)
  if count == 0 then return clear(s) end
  s.last, s.expires, s.level = now, window_end(l, now), count
  return true
end

local function charge_fixed_window(l, s, clock, cost)
  local count, now = window_count(s, clock)
  if cost > 0 then
    count = count + min(MAX_LEVEL - count, cost)
  elseif count == 0 then
    return false
  else
    count = count - min(count, -cost)
  end
  return write_fixed_window(l, s, now, count)
end

local function give_back_fixed_window(l, s, clock, at, cost)
  local count, now = window_count(s, clock)
  if count == 0 or window_end(l, at) ~= s.expires then return false end
  return write_fixed_window(l, s, now, count - min(count, cost))
end
