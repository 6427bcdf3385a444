-- sliding_window and sliding_log; the twin of sliding_window.go.
--
-- Spans stay packed: only those at the two ends are looked at, so a long log
-- costs little more than a short one. So they are checked as they are met:
-- deciding meets every span that charging needs, and returns nothing when one
-- cannot be read.

-- first, last and count of the span at this byte; nothing if there is none.
local function span(s, start)
  if start > #s.spans then return end
  local first, last, count = unpack_doubles('<ddd', s.spans, start)
  if first >= 0 and first <= last and last <= s.last and count >= 0 and count <= MAX_LEVEL then
    return first, last, count
  end
end

local function pack_span(first, last, count)
  return pack('<ddd', first, last, count)
end

-- Where the oldest span begins that still counts, what counts in all, and the
-- key's now; nothing if the spans cannot be read.
local function alive(l, s, clock)
  if clock >= s.expires then return #s.spans + 1, 0, clock end
  local now, count, oldest = max(clock, s.last), s.level, 1
  while oldest < #s.spans do
    local _, last, n = span(s, oldest)
    if not last then return end
    if now - last < l.period then break end
    count = count - n
    oldest = oldest + SPAN
  end
  local some = oldest <= #s.spans
  if some == (count > 0) and count >= 0 and count <= MAX_LEVEL then return oldest, count, now end
end

local function newest_last(s)
  local _, last = span(s, #s.spans - SPAN + 1)
  return last
end

-- The last moment of the span with which n of the count are passed, from
-- oldest on; nothing if there is none.
local function pass(s, oldest, n)
  local _, last, there = span(s, oldest)
  while last and n > there do
    n = n - there
    oldest = oldest + SPAN
    _, last, there = span(s, oldest)
  end
  return last
end

-- Whether all spans from oldest on can be read and sum up to count.
local function is_sum(s, oldest, count)
  for start = oldest, #s.spans, SPAN do
    local first, _, n = span(s, start)
    if not first then return false end
    count = count - n
  end
  return count == 0
end

local function decide_sliding(l, s, clock, cost)
  local oldest, count, now = alive(l, s, clock)
  if not oldest or oldest <= #s.spans and not newest_last(s) then return end
  if cost < 0 and not is_sum(s, oldest, count) then return end
  local remaining, retry, reset = max(0, l.capacity - count), 0, 0
  if count > 0 then
    reset = min(newest_last(s) + l.period, s.expires) - clock
  end
  local claim = claim_of(l, cost)
  if claim > l.capacity then
    retry = NEVER
  elseif claim > remaining then
    local last = pass(s, oldest, count + claim - l.capacity)
    retry = min(last and last + l.period or s.expires, s.expires) - clock
  end
  return remaining, retry, reset, 0, now
end

local function write_sliding(l, s, now, count)
  if count == 0 or s.spans == '' then return clear(s) end
  s.last, s.level = now, count
  s.expires = (newest_last(s) or now) + l.period
  return true
end

-- Takes n of count from the oldest hits.
local function refund_sliding(l, s, now, count, n)
  count = count - n
  local oldest = 1
  while n > 0 do
    local first, last, there = span(s, oldest)
    oldest = oldest + SPAN
    if n < there then
      s.spans = pack_span(first, last, there - n) .. s.spans:sub(oldest)
      return write_sliding(l, s, now, count)
    end
    n = n - there
  end
  s.spans = s.spans:sub(oldest)
  return write_sliding(l, s, now, count)
end

local function charge_sliding(l, s, clock, cost)
  local oldest, count, now = alive(l, s, clock)
  if cost < 0 and count == 0 then return false end
  s.spans = s.spans:sub(oldest)
  if cost < 0 then
    return refund_sliding(l, s, now, count, min(count, -cost))
  end
  cost = min(MAX_LEVEL - count, cost)
  local size = #s.spans
  if size > 0 then
    local first, _, n = span(s, size - SPAN + 1)
    if now < first + l.slot or size >= MAX_SPANS * SPAN or cost == 0 then
      s.spans = s.spans:sub(1, size - SPAN) .. pack_span(first, now, n + cost)
      return write_sliding(l, s, now, count + cost)
    end
  end
  s.spans = s.spans .. pack_span(now, now, cost)
  return write_sliding(l, s, now, count + cost)
end

-- Takes cost from the very slot that the hit at that moment went into.
local function give_back_sliding(l, s, clock, at, cost)
  local oldest, count, now = alive(l, s, clock)
  if not oldest then return false end
  for i = oldest, #s.spans, SPAN do
    local first, last, n = span(s, i)
    if not first then return false end
    if at >= first and at <= last then
      local given = min(cost, n, count)
      local rest = given < n and pack_span(first, last, n - given) or ''
      s.spans = s.spans:sub(oldest, i - 1) .. rest .. s.spans:sub(i + SPAN)
      return write_sliding(l, s, now, count - given)
    end
  end
end
