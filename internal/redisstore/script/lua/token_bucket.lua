-- token_bucket, gcra and leaky_bucket; the twin of token_bucket.go.

local function new_bucket(is_leaky, charging, capacity, quantum, unit, rate, max_debt, leeway)
  local least = charging == CHARGES_REPORTED and 0 or 1 -- claim
  local full = capacity * unit + leeway

  local function units(tokens)
    local n = tokens * unit
    if n > max_debt then return max_debt end
    return n
  end

  -- Returns how many tokens there are beside a debt.
  local function room(debt)
    local free = full - (debt > leeway and debt or leeway)
    if free < 0 then return 0 end
    return (free - free % unit) / unit
  end

  -- Returns the moment when a debt at the moment at has drained.
  local function drained(at, debt)
    return at + (debt + -debt % rate) / rate * quantum
  end

  local function decide(value, cost)
    local at, debt, expires = clock - clock % quantum, 0, 0
    if value and #value ~= 32 then value = split_pause(value) end
    if value then
      if #value ~= 32 then return end
      local last, level, its_unit
      last, expires, level, its_unit = unpack_doubles('<dddd', value)
      if not are_readable(last, expires, level) or not (its_unit >= 1 and its_unit <= 2^53 and its_unit % 1 == 0) then
        return
      end
      if clock < expires then
        local written = last
        if last % quantum > 0 then last = last - last % quantum + quantum end
        if last > at then
          -- New numbers round up by less than a quantum.
          if last - quantum >= clock + ARGV[1] then
            expires = clock + expires - written
            return nil, pack('<dddd', clock, expires, level, its_unit), expires
          end
          at = last
        end
        debt = level
        if its_unit ~= unit then
          -- New numbers: the debt goes on in whole tokens.
          local tokens = level / its_unit
          debt = units(tokens + -tokens % 1)
        elseif debt > max_debt then
          debt = max_debt
        end
        debt = debt - (at - last) / quantum * rate
        if debt < 0 then debt = 0 end
      end
    end
    local retry, reset, wait = 0, 0, 0
    if debt > leeway then
      reset = drained(at, debt - leeway)
      if reset > expires then reset = expires end
      reset = reset - clock
      if is_leaky then wait = reset end
    end
    if cost >= 0 then
      local claim = (charging == CHARGES_USE or cost < least) and least or cost
      if claim > capacity then
        retry = NEVER
      else
        local over = (debt > leeway and debt or leeway) + claim * unit - full
        if over > 0 then
          retry = drained(at, over)
          if retry > expires then retry = expires end
          retry = retry - clock
        end
      end
    end
    return room(debt), retry, reset, wait, at, debt
  end

  local function write(at, debt)
    if debt == 0 then return false, clock, capacity end
    local expires = drained(at, debt)
    return pack('<dddd', at, expires, debt, unit), expires, room(debt)
  end

  local function charge(cost, debt, at)
    if cost > 0 then
      debt = (debt > leeway and debt or leeway) + units(cost)
      if debt > max_debt then debt = max_debt end
    elseif debt == 0 then
      return
    else
      debt = debt - units(-cost)
      if debt < 0 then debt = 0 end
    end
    return write(at, debt)
  end

  -- Returns what is left of a debt after so many ticks; nothing if the clock went back.
  local function left(debt, ticks)
    local rest = debt - ticks * rate
    return ticks >= 0 and rest > 0 and rest or 0
  end

  -- Returns what the portions before i would leave by a moment in a bucket of their own.
  local function owed(b, i, tick)
    local debt, last = 0, 0
    for j = 1, i - 1 do
      local its_tick = b.at[j] - b.at[j] % quantum
      debt = left(debt, (its_tick - last) / quantum) + units(b.costs[j])
      if debt > max_debt then debt = max_debt end
      last = its_tick
    end
    return left(debt, (tick - last) / quantum)
  end

  local function give_back(cost, debt, at, value, _, taken, b, i)
    local tick = taken - taken % quantum
    local all = b and units(b.costs[i]) + owed(b, i, tick) or units(cost)
    local part, rest = units(cost), left(all, (at - tick) / quantum)
    if debt == 0 or rest == 0 then return end
    if leeway > 0 and unpack_doubles('<d', value) ~= taken then rest = rest > leeway and rest - leeway or 0 end
    if part < rest then rest = part end
    if rest == 0 then return end
    return write(at, rest < debt and debt - rest or 0)
  end

  return decide, charge, give_back, unit, false, leeway / rate * quantum
end

makers[TOKEN_BUCKET] = function(...) return new_bucket(false, ...) end
makers[GCRA] = makers[TOKEN_BUCKET]
makers[LEAKY_BUCKET] = function(...) return new_bucket(true, ...) end
