-- token_bucket, gcra and leaky_bucket; the twin of token_bucket.go.

local function units(l, tokens)
  if tokens > floor(l.max_debt / l.unit) then return l.max_debt end
  return tokens * l.unit
end

-- What a bucket owes at the tick now.
local function debt_of(l, s, clock)
  local now = floor(clock / l.quantum)
  if clock >= s.expires then return 0, now end
  local last = ceil(s.last / l.quantum)
  now = max(now, last)
  local debt = min(s.level, l.max_debt)
  if s.unit ~= l.unit then
    -- New numbers: the debt goes on in whole tokens.
    debt = units(l, ceil(s.level / s.unit))
  end
  local elapsed = now - last
  if elapsed >= ceil(debt / l.rate) then return 0, now end
  return debt - elapsed * l.rate, now
end

-- The moment at which a debt at the tick now has drained.
local function drained(l, now, debt)
  return (now + ceil(debt / l.rate)) * l.quantum
end

local function decide_bucket(l, s, clock, cost)
  local debt, now = debt_of(l, s, clock)
  local remaining, retry, reset, wait = floor(max(0, l.full - debt) / l.unit), 0, 0, 0
  if debt > 0 then
    reset = min(drained(l, now, debt), s.expires) - clock
    if l.kind == LEAKY then wait = reset end
  end
  local claim = claim_of(l, cost)
  if claim > l.capacity then
    retry = NEVER
  elseif claim > remaining then
    local over = debt + claim * l.unit - l.full
    retry = min(drained(l, now, over), s.expires) - clock
  end
  return remaining, retry, reset, wait, now * l.quantum
end

local function write_bucket(l, s, now, debt)
  if debt == 0 then return clear(s) end
  s.last, s.expires = now * l.quantum, drained(l, now, debt)
  s.level, s.unit = debt, l.unit
  return true
end

local function charge_bucket(l, s, clock, cost)
  local debt, now = debt_of(l, s, clock)
  if cost > 0 then
    debt = debt + min(l.max_debt - debt, units(l, cost))
  elseif debt == 0 then
    return false
  else
    debt = debt - min(debt, units(l, -cost))
  end
  return write_bucket(l, s, now, debt)
end

local function give_back_bucket(l, s, clock, at, cost)
  local debt, now = debt_of(l, s, clock)
  local taken = units(l, cost)
  local refilled = max(0, now - floor(at / l.quantum))
  if debt == 0 or refilled >= ceil(taken / l.rate) then return false end
  return write_bucket(l, s, now, debt - min(debt, taken - refilled * l.rate))
end
