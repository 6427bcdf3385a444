-- fixed_window with a calendar; the twin of fixed_window.go where that asks one.
--
-- Windows by calendar are computed in Go. A limit has the borders of two that follow each
-- other, and the script decides by its own clock in which of them it is. Where it is in
-- neither, decide returns nil, nil and the moment whose windows it needs.

makers[CALENDAR] = function(charging, capacity, first, middle, last)
  local least = charging == CHARGES_REPORTED and 0 or 1 -- claim

  local function is_inside(at) return at >= first and at < last end

  -- Returns the end of the window that contains at, which is inside.
  local function window_end(at) return at < middle and middle or last end

  if capacity == 0 then -- as makers[0]
    local function decide(_, cost)
      if not is_inside(clock) then return nil, nil, clock end
      return 0, cost < 0 and 0 or NEVER, window_end(clock) - clock, 0, clock
    end
    local function change_nothing() end
    return decide, change_nothing, change_nothing
  end

  local function decide(value, cost)
    local now, count, written, expires = clock, 0, 0, 0
    if value then
      if #value ~= 24 then return end
      local level
      written, expires, level = unpack_doubles('<ddd', value)
      if not are_readable(written, expires, level) then return end
      if clock < expires then
        count = level
        if written > now then
          if written > clock + ARGV[1] then
            if not is_inside(clock) then return nil, nil, clock end
            expires = window_end(clock)
            return nil, pack('<ddd', clock, expires, level), expires
          end
          now = written
        end
      end
    end
    if not is_inside(now) then return nil, nil, now end
    local ends = window_end(now)
    if written < (ends == middle and first or middle) then count = 0 end
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
    return remaining, retry, reset, 0, now, count, expires
  end

  local charge, give_back = new_window_writes(capacity, window_end)

  local function give_back_inside(cost, count, now, value, expires, taken)
    if is_inside(taken) then return give_back(cost, count, now, value, expires, taken) end
  end

  return decide, charge, give_back_inside
end
