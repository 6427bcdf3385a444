-- fixed_window with a calendar; the twin of fixed_window.go where that asks one.
--
-- Windows by calendar are computed in Go. A limit has the borders of two that follow each
-- other, and the script decides by its own clock in which of them it is. Where it is in
-- neither, decide returns nil, nil and the moment whose windows it needs. Moved is
-- Calendar.Moved.

makers[CALENDAR] = function(charging, capacity, first, middle, last, moved)
  local function window(at)
    if at < first or at >= last then return end
    if at < middle then return first, middle end
    return middle, last
  end

  if capacity == 0 then -- as makers[0]
    local function decide(_, cost)
      local _, ends = window(clock)
      if not ends then return nil, nil, clock end
      return 0, cost < 0 and 0 or NEVER, ends - clock, 0, clock
    end
    local function change_nothing() end
    return decide, change_nothing, change_nothing
  end

  local function window_end(at)
    local _, ends = window(at)
    return ends
  end

  return new_window_decision(charging, capacity, window, moved), new_window_writes(capacity, window_end)
end
