-- Pauses of limits with a block; the twin of pause.go.
--
-- state.lua says where they are kept. Limits without a block look at no pause, and drop it
-- when they write.

local function join_pause(state, began, ends)
  return (state or '') .. pack('<dd', began, -ends)
end

-- Returns the moment when the key of a state with a pause expires.
local function paused_expiry(state, ends)
  if not state or #state < 24 then return ends end
  local _, expires = unpack_doubles('<dd', state)
  return expires > ends and expires or ends
end

-- Makes the steps of a limit heed pauses, and adds pause(value), which starts one of a
-- state that denies: it returns the value to keep and the moment when that expires, or
-- nothing if no cost was charged since the last pause.
-- In a pause, wait is twice what is left of it; and 1 more where it has just begun.
local function add_pauses(limit, block)
  local decide, charge, give_back = limit.decide, limit.charge, limit.give_back
  limit.block = block

  function limit.decide(value, cost)
    local state, began, ends = split_pause(value)
    if not began then return decide(value, cost) end
    if not are_readable(began, ends, 0) then return end
    local is_ahead = began > clock + ARGV[1]
    if is_ahead then began, ends = clock, clock + ends - began end
    local remaining, retry, reset, wait, at, level, rest = decide(state, cost)
    if not remaining then
      if not retry then return nil, nil, reset end
      return nil, join_pause(retry, began, ends), reset > ends and reset or ends
    end
    if is_ahead then return nil, join_pause(state, began, ends), paused_expiry(state, ends) end
    local left = ends - clock
    if left > 0 then
      remaining, wait = 0, 2 * left
      if reset < left then reset = left end
      if cost >= 0 and retry ~= NEVER and retry < left then retry = left end
    end
    return remaining, retry, reset, wait, at, level, rest
  end

  local function keep(began, ends, state, expires, remaining)
    if not expires or clock >= ends and not state then return state, expires, remaining end
    if expires < ends then expires = ends end
    return join_pause(state, began, ends), expires, clock < ends and 0 or remaining
  end

  function limit.charge(cost, level, at, value, rest)
    local state, began, ends = split_pause(value)
    if not began or cost > 0 and clock >= ends then return charge(cost, level, at, state, rest) end
    return keep(began, ends, charge(cost, level, at, state, rest))
  end

  function limit.give_back(cost, level, at, value, rest, taken, bill, i)
    local state, began, ends = split_pause(value)
    if not began then return give_back(cost, level, at, state, rest, taken, bill, i) end
    return keep(began, ends, give_back(cost, level, at, state, rest, taken, bill, i))
  end

  function limit.pause(value)
    local _, began = split_pause(value)
    if began then return end
    local ends = clock + block
    return join_pause(value, clock, ends), paused_expiry(value, ends)
  end
end
