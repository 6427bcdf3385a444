-- sliding_window and sliding_log; the twin of sliding_window.go.
--
-- Spans stay packed: only those at the two ends are looked at, so a long log
-- costs little more than a short one. So each is checked when it is looked at: deciding
-- looks at every span that charging needs, and returns nothing when one cannot be read.
-- rest is the byte of the value at which the oldest span that still counts begins.

makers[SLIDING_WINDOW] = function(charging, capacity, period, slot, _, _, leeway)
  local least = charging == CHARGES_REPORTED and 0 or 1 -- claim
  local HEAD, SPAN = 24, 24 -- bytes
  local MAX_SPANS = 1000
  local MAX_LEASE = 1000000

  -- Returns first, last and count of the span at this byte; nothing if it cannot be
  -- read. No span ends later than a lease after written, the moment of the state's last
  -- write.
  local function span(value, start, written)
    local first, last, count = unpack_doubles('<ddd', value, start)
    if first >= 0 and first <= last and last <= written + MAX_LEASE and count >= 0 and count <= MAX_LEVEL then
      return first, last, count
    end
  end

  -- Returns where the oldest span that still counts at now begins, and the total count;
  -- nothing if the spans cannot be read.
  local function alive(value, now, written, count)
    local oldest = HEAD + 1
    while oldest < #value do
      local _, last, n = span(value, oldest, written)
      if not last then return end
      if now - last < period then break end
      count = count - n
      oldest = oldest + SPAN
    end
    local some = oldest < #value
    if some == (count > 0) and count >= 0 and count <= MAX_LEVEL then return oldest, count end
  end

  -- Returns the last moment of the span that completes n hits, counted from oldest on;
  -- nothing if there is none.
  local function pass(value, oldest, written, n)
    while oldest < #value do
      local _, last, there = span(value, oldest, written)
      if not last or n <= there then return last end
      n = n - there
      oldest = oldest + SPAN
    end
  end

  -- Returns whether all spans from oldest on can be read and add up to count.
  local function is_sum(value, oldest, written, count)
    for start = oldest, #value, SPAN do
      local first, _, n = span(value, start, written)
      if not first then return false end
      count = count - n
    end
    return count == 0
  end

  -- Returns what Mend in Go makes of a state, and the moment when it expires; nothing
  -- if the spans cannot be read.
  local function mend(value, expires, written, count)
    if not is_sum(value, HEAD + 1, written, count) then return end
    local spans, ahead = {}, 0 -- by how much the newest span is
    local used = clock + leeway
    for start = HEAD + 1, #value, SPAN do
      local first, last, n = unpack_doubles('<ddd', value, start)
      ahead = last > used and last - used or 0
      spans[#spans + 1] = pack('<ddd', first < used and first or used, last - ahead, n)
    end
    expires = expires - ahead
    return pack('<ddd', clock, expires, count) .. table.concat(spans), expires
  end

  local function decide(value, cost)
    local now, count, oldest, expires, written = clock, 0, 1, 0, 0
    local reset = 0
    if value and #value % SPAN ~= 0 then value = split_pause(value) end
    if value then
      if #value < HEAD + SPAN or #value % SPAN ~= 0 then return end
      written, expires, count = unpack_doubles('<ddd', value)
      if not are_readable(written, expires, count) then return end
      if clock >= expires then
        count, oldest = 0, #value + 1
      else
        if written > now then
          if written > clock + ARGV[1] then return nil, mend(value, expires, written, count) end
          now = written
        end
        oldest, count = alive(value, now, written, count)
        if not oldest then return end
        if count > 0 then
          local _, newest = span(value, #value - SPAN + 1, written)
          if not newest or cost < 0 and not is_sum(value, oldest, written, count) then return end
          reset = (newest + period < expires and newest + period or expires) - clock
        end
      end
    end
    local remaining, retry = capacity - count, 0
    if remaining < 0 then remaining = 0 end
    if cost >= 0 then
      local claim = (charging == CHARGES_USE or cost < least) and least or cost
      if claim > capacity then
        retry = NEVER
      elseif count + claim > capacity then
        local passed = pass(value, oldest, written, count + claim - capacity)
        retry = (passed and passed + period < expires and passed + period or expires) - clock
      end
    end
    return remaining, retry, reset, 0, now, count, oldest
  end

  -- spans are all that still count, and newest is the last moment of the last one.
  local function write(now, count, spans, newest)
    if count == 0 or spans == '' then return false, clock, capacity end
    local expires = newest + period
    return pack('<ddd', now, expires, count) .. spans, expires, count < capacity and capacity - count or 0
  end

  local function newest_last(spans)
    if spans == '' then return end
    local _, last = unpack_doubles('<ddd', spans, #spans - SPAN + 1)
    return last
  end

  -- Takes n of count from the oldest hits.
  local function refund(n, count, now, value, oldest)
    if n > count then n = count end
    count = count - n
    local spans
    while n > 0 do
      local first, last, there = unpack_doubles('<ddd', value, oldest)
      oldest = oldest + SPAN
      if n < there then
        spans = pack('<ddd', first, last, there - n) .. value:sub(oldest)
        return write(now, count, spans, newest_last(spans))
      end
      n = n - there
    end
    spans = value:sub(oldest)
    return write(now, count, spans, newest_last(spans))
  end

  local function charge(cost, count, now, value, oldest)
    if value and #value % SPAN ~= 0 then value = split_pause(value) end
    if cost < 0 then
      if count == 0 then return end
      return refund(-cost, count, now, value, oldest)
    end
    if cost > MAX_LEVEL - count then cost = MAX_LEVEL - count end
    local size, used = value and #value + 1 - oldest or 0, now + leeway
    if size > 0 then
      local first, last, n = unpack_doubles('<ddd', value, #value - SPAN + 1)
      if last > used then used = last end -- its lease was longer
      if used < first + slot or size >= MAX_SPANS * SPAN or cost == 0 then
        local spans = value:sub(oldest, -SPAN - 1) .. pack('<ddd', first, used, n + cost)
        return write(now, count + cost, spans, used)
      end
    end
    local spans = pack('<ddd', used, used, cost)
    if size > 0 then spans = value:sub(oldest) .. spans end
    return write(now, count + cost, spans, used)
  end

  -- Takes cost from the span that the hit at that moment went into.
  local function give_back(cost, count, now, value, oldest, taken)
    if value and #value % SPAN ~= 0 then value = split_pause(value) end
    local used = taken + leeway
    for i = oldest, value and #value or 0, SPAN do
      local first, last, n = unpack_doubles('<ddd', value, i)
      if used >= first and used <= last then
        local given = cost < n and cost or n
        local left = given < n and pack('<ddd', first, last, n - given) or ''
        local spans = value:sub(oldest, i - 1) .. left .. value:sub(i + SPAN)
        return write(now, count - given, spans, newest_last(spans))
      end
    end
  end

  return decide, charge, give_back
end

makers[SLIDING_LOG] = makers[SLIDING_WINDOW]
