-- What takes with IDs have charged, and their settlement; the twin of bill.go.
--
-- The bill of an ID is a string of doubles beside the state that was charged: ends,
-- takes, pace, then the moment and cost of each portion, the oldest first. Beside a state
-- that was reset lies a double too, the moment of that, until no bill is left from before
-- (reset.lua).

-- Makes the steps on bills, in one function: most commands need none. values and expiries
-- are by index of the key, put appends a number to the reply, and put_undecided why a
-- request is not decided, see main.lua.
local function new_bills(limits, values, expiries, put, put_undecided)
  -- at and costs are those of the n portions, and total is the sum of their costs.
  local function new_bill()
    return {ends = 0, takes = 0, pace = 0, n = 0, at = {}, costs = {}, total = 0}
  end

  local function are_counts(...)
    for i = 1, select('#', ...) do
      local x = select(i, ...)
      if not (x >= 0 and x <= 2^53 and x % 1 == 0) then return false end
    end
    return true
  end

  -- Returns the bill in a value; nil if there is none any more, false if it cannot be read.
  local function read_bill(value)
    if not value then return nil end
    local b = new_bill()
    b.n = (#value - 24) / 16
    if b.n < 0 or b.n > MAX_PORTIONS or b.n % 1 ~= 0 then return false end
    b.ends, b.takes, b.pace = unpack_doubles('<ddd', value)
    if not are_counts(b.ends, b.takes, b.pace) then return false end
    for i = 1, b.n do
      b.at[i], b.costs[i] = unpack_doubles('<dd', value, 9 + 16 * i)
      if not are_counts(b.at[i], b.costs[i]) then return false end
      b.total = b.total + b.costs[i]
    end
    if b.total > MAX_LEVEL then return false end
    if clock >= b.ends or b.takes == 0 then return nil end
    return b
  end

  local function pack_bill(b)
    local parts = {pack('<ddd', b.ends, b.takes, b.pace)}
    for i = 1, b.n do parts[i + 1] = pack('<dd', b.at[i], b.costs[i]) end
    return table.concat(parts)
  end

  -- Nothing says any more how much of the portions still counts.
  local function void_bill(b)
    if b.total > 0 then b.n, b.at, b.costs = 1, {0}, {b.total} end
  end

  -- Returns whether the value beside a state that says when it was reset can be read, and
  -- voids the portions from before.
  local function heed_reset(b, value)
    if not value then return true end
    if #value ~= 8 then return false end
    local reset = unpack_doubles('<d', value)
    for i = 1, b.n do
      if b.at[i] <= reset then b.at[i] = 0 end
    end
    return true
  end

  -- Adds what was charged at that moment by a limit of that pace.
  local function add_to_bill(b, pace, at, cost)
    if b.pace ~= pace then
      void_bill(b)
      b.pace = pace
    end
    local room = MAX_LEVEL - b.total
    if cost > room then cost = room end
    if cost == 0 then return end
    if b.n < MAX_PORTIONS and b.at[b.n] ~= at then
      b.n = b.n + 1
      b.at[b.n], b.costs[b.n] = at, 0
    end
    b.costs[b.n] = b.costs[b.n] + cost
    b.total = b.total + cost
  end

  -- Returns the level of the state of key k, and what a step needs besides.
  local function look(k, l)
    local _, _, _, _, at, level, rest = l.decide(values[k], -1)
    return level, at, rest
  end

  local function keep(k, value, expires)
    if expires then values[k], expiries[k] = value, expires end
    return expires ~= nil
  end

  -- Gives back a part of portion i, and returns how much, rounded up.
  local function return_part(h, b, i, part)
    local level, at, rest = look(h.k, h.l)
    if not level then return 0 end
    if not keep(h.k, h.l.give_back(part, level, at, values[h.k], rest, b.at[i], b, i)) then
      return 0
    end
    local given = level - look(h.k, h.l)
    return (given + -given % h.unit) / h.unit
  end

  -- Gives back so much of the cost, of the newest portion first, and returns how much.
  local function return_cost(h, b, cost)
    if b.pace ~= h.pace then return 0 end
    local left = cost
    for i = b.n, 1, -1 do
      local part = left < b.costs[i] and left or b.costs[i]
      if part > 0 and b.at[i] > 0 then
        local given = return_part(h, b, i, part)
        b.costs[i] = b.costs[i] - given
        left = left - given
      end
    end
    local n, at, costs = 0, {}, {}
    for i = 1, b.n do
      if b.costs[i] > 0 then
        n = n + 1
        at[n], costs[n] = b.at[i], b.costs[i]
      end
    end
    b.n, b.at, b.costs, b.total = n, at, costs, b.total - cost + left
    return cost - left
  end

  -- Returns how much of a cost a state has taken that had this level before: less than all
  -- if it now holds as much as it can. What is in no state must be in no bill, or a
  -- settlement would give it back out of what others have charged.
  local function took(k, l, cost, before)
    local more = look(k, l) - before
    more = (more - more % l.unit) / l.unit
    return more < cost and more or cost
  end

  local function add_cost(h, b, cost)
    local level, at, rest = look(h.k, h.l)
    if not keep(h.k, h.l.charge(cost, level, at, values[h.k], rest)) then return 0 end
    local added = took(h.k, h.l, cost, level)
    if added > 0 then add_to_bill(b, h.pace, at, added) end
    return added
  end

  local function settle(h, b)
    local goal, returned, added = h.cost, 0, 0
    if goal < 0 then
      b.takes = b.takes - 1
      goal = b.total + goal
      if goal < 0 or b.takes == 0 then goal = 0 end
    end
    if goal < b.total then
      returned = return_cost(h, b, b.total - goal)
    elseif goal > b.total then
      added = add_cost(h, b, goal - b.total)
    end
    if b.takes == 0 then
      keep(h.bill, false, clock)
    elseif returned > 0 or added > 0 or h.cost < 0 then
      keep(h.bill, pack_bill(b), b.ends)
    end
    local remaining, _, reset = h.l.decide(values[h.k], 0)
    put(b.takes + 1)
    put(returned)
    put(added)
    put(remaining)
    put(reset)
  end

  -- Reads a hit, with its bill if it has one. Returns whether all can be read, how many
  -- states a wrong clock had written, and what put_undecided needs.
  local function find(h)
    local b = read_bill(values[h.bill])
    if b == false or b and not heed_reset(b, values[h.lost]) then return false, 0 end
    if not b or h.l.anyway < 0 then return true, 0 end -- holders have no bills
    h.found = b
    local remaining, value, expires = h.l.decide(values[h.k], -1)
    if remaining then return true, 0 end
    if not value then return false, 0, expires end
    values[h.k], expiries[h.k] = value, expires
    return h.l.decide(value, -1) ~= nil, 1
  end

  -- Settles the n hits of the request at start. Returns where the next request begins, and
  -- how many states a wrong clock had written.
  local function settle_all(n, start)
    local hits, readable, mended, elsewhen = {}, true, 0, nil
    for i = 1, n do
      local h, l = {}, nil
      h.k, l, h.cost, h.bill, h.lost, h.pace, h.unit, start = unpack_doubles('<ddddddd', ARGV[3], start)
      h.l, hits[i] = limits[l], h
      local is_readable, is_mended, needed = find(h)
      readable, mended, elsewhen = readable and is_readable, mended + is_mended, elsewhen or needed
    end
    if not readable then
      put_undecided(elsewhen)
      return start, mended
    end
    put(8) -- DONE
    for i = 1, n do
      if hits[i].found then settle(hits[i], hits[i].found) else put(0) end
    end
    return start, mended
  end

  -- Finds the bill of a hit of a take, if it has one. Returns whether it can be read.
  local function find_to_reserve(h)
    local b = read_bill(values[h.bill])
    if b == false or b and not heed_reset(b, values[h.lost]) then return false end
    h.found = b or new_bill()
    return true
  end

  -- Adds a cost that was charged to key k at that moment to the bill of its hit. Its state
  -- had the level before; only what is charged beyond the capacity may not fit.
  local function reserve(h, at, cost, k, l, before)
    local b, ends = h.found, clock + h.lasts
    if l.anyway > 0 then cost = took(k, l, cost, before) end
    b.takes = b.takes + 1
    if ends > b.ends then b.ends = ends end
    add_to_bill(b, h.pace, at, cost)
    keep(h.bill, pack_bill(b), b.ends)
  end

  return {find = find_to_reserve, reserve = reserve, settle = settle_all}
end
