-- fixed_window; the twin of fixed_window.go.

-- Makes the two steps that write, from the function that returns the end of the window that
-- contains a moment.
local function new_window_writes(capacity, window_end)
  local function write(now, count)
    if count == 0 then return false, clock, capacity end
    local expires = window_end(now)
    return pack('<ddd', now, expires, count), expires, count < capacity and capacity - count or 0
  end

  local function charge(cost, count, now)
    if cost < 0 and count == 0 then return end
    if cost > MAX_LEVEL - count then cost = MAX_LEVEL - count end
    count = count + cost
    return write(now, count > 0 and count or 0)
  end

  local function give_back(cost, count, now, _, expires, taken)
    if count == 0 or window_end(taken) ~= expires then return end
    return write(now, cost < count and count - cost or 0)
  end

  return charge, give_back
end

-- Makes decide from the function that returns the start and the end of the window that
-- contains a moment, or nothing if it does not know the moment's window. What was last
-- written before a window counts in it if that began by moved.
local function new_window_decision(charging, capacity, window, moved)
  local least = charging == CHARGES_REPORTED and 0 or 1 -- claim

  return function(value, cost)
    local now, count, last, expires = clock, 0, 0, 0
    if value and #value ~= 24 then value = split_pause(value) end
    if value then
      if #value ~= 24 then return end
      local level
      last, expires, level = unpack_doubles('<ddd', value)
      if not are_readable(last, expires, level) then return end
      if clock < expires then
        count = level
        if last > now then
          if last > clock + ARGV[1] then
            local _, ends = window(clock)
            if not ends then return nil, nil, clock end
            return nil, pack('<ddd', clock, ends, level), ends
          end
          now = last
        end
      end
    end
    local start, ends = window(now)
    if not ends then return nil, nil, now end
    if last < start and start > moved then count = 0 end
    if expires < ends then ends = expires end
    local remaining, retry, reset = capacity - count, 0, 0
    if remaining < 0 then remaining = 0 end
    if count > 0 then reset = ends - clock end
    if cost >= 0 then
      local claim = (charging == CHARGES_USE or cost < least) and least or cost
      if claim > capacity then
        retry = NEVER
      elseif count + claim > capacity then
        retry = ends - clock
      end
    end
    return remaining, retry, reset, 0, now, count, ends
  end
end

makers[FIXED_WINDOW] = function(charging, capacity, period)
  local function window(at)
    local start = at - at % period
    return start, start + period
  end
  local function window_end(at) return at - at % period + period end

  return new_window_decision(charging, capacity, window, 0), new_window_writes(capacity, window_end)
end
