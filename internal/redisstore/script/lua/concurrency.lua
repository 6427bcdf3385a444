-- concurrency; the twin of concurrency.go.
--
-- All calls are made while a request is decided, and not at the end as for other
-- states: a set may be large, and a request changes little of it. Lapsed holders stay
-- in the set for a hold, and then until a take removes them, a few each time, so holders
-- are counted by when their holds end.

makers[CONCURRENCY] = function(_, capacity, hold)
  local MAX_DROPPED = 16
  local TOP = 2^52 -- puts the moment of the last write above all ends
  local RELEASED_SLOT, RELEASED_TOO_LATE = 1, 2 -- Released in Go
  local RENEWED, RENEWED_SOON = 1, 2 -- Renewal in Go
  local soon = (hold - hold % 8) / 8

  -- Returns the moment of the last write, the moment from which nothing counts, and the
  -- end of the hold that ends last, or 0; nil if there is no state, false if it cannot be
  -- read.
  local function read(key)
    local top = redis.pcall('ZREVRANGE', key, 0, 1, 'WITHSCORES')
    if top.err then
      for _, reason in ipairs({'WRONGTYPE', "can't run this command", 'ACL failure'}) do
        if top.err:find(reason, 1, true) then return false end
      end
      call('ZREVRANGE', key, 0, 1) -- fails in the same way
    end
    if not top[1] then return nil end
    local last, latest = tonumber(top[2]) - TOP, tonumber(top[4] or 0)
    local free = latest > last and latest or last + 1
    if top[1] ~= '' or not are_readable(last, free, 0) or latest % 1 ~= 0 then return false end
    return last, free, latest
  end

  -- Returns how many holders there are after the moment at.
  local function held_after(key, at) return call('ZCOUNT', key, at + 1, '+inf') - 1 end

  -- Says that the set stays until those who lapse are forgotten, and returns the end of
  -- the hold that ends last.
  local function keep(key)
    local last, _, latest = read(key)
    local forgotten = latest > 0 and latest + hold or 0
    HOLDERS[key] = forgotten > last and forgotten or last + 1
    return latest
  end

  -- Does what Mend in Go does. It looks at all holders that hold longer than one that
  -- takes at clock would, but only once after a clock was wrong.
  local function mend(key, last)
    call('ZREMRANGEBYSCORE', key, '-inf', last)
    local latest = clock + hold
    for _, holder in ipairs(call('ZRANGEBYSCORE', key, latest + 1, TOP - 1)) do
      call('ZADD', key, latest, holder)
    end
    call('ZADD', key, TOP + clock, '')
    return HOLDERS, keep(key)
  end

  -- Returns how long it is until there is room after as many holds as have to end, or 0
  -- if there can be none.
  local function free_in(key, pending, now)
    if pending >= capacity then return 0 end
    local index = call('ZCARD', key) - 1 - capacity + pending
    return tonumber(call('ZRANGE', key, index, index, 'WITHSCORES')[2]) - now
  end

  -- who.pending and who.wrote belong to the whole request, by key: how many hits are
  -- about to take a slot, and the moment of the last write since they were decided.
  local function decide(value, cost, who)
    if value and value ~= HOLDERS then return end
    local key = who.key
    local last, free, latest = read(key)
    if last == false then return end
    local now, held, reset, ends = clock, 0, 0, nil
    if last then
      if last > clock + ARGV[1] then return nil, mend(key, last) end
      if last >= now then now = last + 1 end
      if clock < free then
        held = held_after(key, now)
        if held > 0 then reset = latest - now end
      end
      if who.holder ~= '' and (cost < 0 or clock < free) then
        ends = tonumber(call('ZSCORE', key, who.holder) or nil)
      end
    end
    local holds = ends and ends > now
    who.ends, who.holds, who.last, who.held, who.latest = ends, holds, last, held, latest or 0
    local remaining, retry, wait = capacity - held, 0, 0
    if remaining < 0 then remaining = 0 end
    if cost < 0 then
      if holds then wait = RELEASED_SLOT elseif ends and ends > now - hold then wait = RELEASED_TOO_LATE end
    elseif cost > 1 or cost == 1 and who.holder == '' or capacity == 0 then
      retry = NEVER
    else
      local pending = who.holder ~= '' and who.pending[key] or 0
      if holds then
        if cost == 1 then
          wait = now - (ends - hold) < soon and RENEWED_SOON or RENEWED
        end
      elseif held + pending >= capacity then
        retry, wait = UNKNOWN, free_in(key, pending, now)
      elseif cost == 1 then
        who.pending[key] = pending + 1
      end
    end
    return remaining, retry, reset, wait, now, now, who
  end

  -- Returns the moment of a write: now, or later if the request has written since.
  local function moment_of(who, now)
    local wrote = who.wrote[who.key]
    return wrote and wrote >= now and wrote + 1 or now
  end

  local function release(who, now)
    if not who.ends then return end
    local key = who.key
    now = moment_of(who, now)
    call('ZREM', key, who.holder)
    if who.ends <= now then return end -- it had lapsed
    local held = held_after(key, now)
    if held > 0 then
      who.wrote[key] = now
      call('ZADD', key, TOP + now, '')
      return HOLDERS, clock + keep(key) - now, held < capacity and capacity - held or 0
    end
    who.wrote[key] = who.wrote[key] or who.last
    keep(key)
    if HOLDERS[key] <= clock then return false, clock, capacity end
    return HOLDERS, clock, capacity
  end

  -- Removes some of those that lapsed a hold ago or more, of so many that have lapsed.
  local function drop(key, now, lapsed)
    local old = lapsed > 0 and call('ZCOUNT', key, '-inf', now - hold) or 0
    if old > 0 then
      call('ZREMRANGEBYRANK', key, 0, (old < MAX_DROPPED and old or MAX_DROPPED) - 1)
    end
  end

  local function charge(cost, now, _, _, who)
    if cost < 0 then return release(who, now) end
    if who.holder == '' then return end
    local key = who.key
    local held, latest = who.held + (who.holds and 0 or 1), now + hold
    local was_written = who.wrote[key]
    now = moment_of(who, now)
    call('ZADD', key, TOP + now, '', now + hold, who.holder)
    who.wrote[key] = now
    if was_written then held = held_after(key, now) end
    if was_written or latest < who.latest then
      latest = keep(key)
    else
      HOLDERS[key] = latest + hold
    end
    drop(key, now, call('ZCARD', key) - 1 - held)
    return HOLDERS, clock + latest - now, held < capacity and capacity - held or 0, now
  end

  local function give_back(_, now, _, _, who, taken)
    if who.holds and who.ends == taken + hold then return release(who, now) end
  end

  return decide, charge, give_back, 1, true
end
