-- concurrency; the twin of concurrency.go.
--
-- All calls are made while a request is decided, and not at the end as for other
-- states: a set may be large, and a request changes little of it. Lapsed holders stay
-- in the set until a take removes them, a few each time, so holders are counted by when
-- their holds end.

makers[CONCURRENCY] = function(_, capacity, hold)
  local MAX_DROPPED = 16
  local TOP = 2^52 -- puts the moment of the last write above all ends

  -- Returns the moment of the last write and the moment from which nothing counts; nil if
  -- there is no state, false if it cannot be read.
  local function read(key)
    local top = redis.pcall('ZREVRANGE', key, 0, 1, 'WITHSCORES')
    if top.err then
      if top.err:find('WRONGTYPE', 1, true) then return false end
      call('ZREVRANGE', key, 0, 1) -- fails in the same way
    end
    if not top[1] then return nil end
    local last, latest = tonumber(top[2]) - TOP, tonumber(top[4] or 0)
    if top[1] ~= '' or not are_readable(last, latest > last and latest or last + 1, 0) or latest % 1 ~= 0 then
      return false
    end
    return last, latest > last and latest or last + 1
  end

  -- Returns how many holders there are after the moment at.
  local function held_after(key, at) return call('ZCOUNT', key, at + 1, '+inf') - 1 end

  -- Does what Mend in Go does. It looks at all holders that hold longer than one that
  -- takes at clock would, but only once after a clock was wrong.
  local function mend(key, last)
    call('ZREMRANGEBYSCORE', key, '-inf', last)
    local latest = clock + hold
    for _, holder in ipairs(call('ZRANGEBYSCORE', key, latest + 1, TOP - 1)) do
      call('ZADD', key, latest, holder)
    end
    call('ZADD', key, TOP + clock, '')
    local _, expires = read(key)
    return HOLDERS, expires
  end

  -- who.pending and who.wrote belong to the whole request, by key: how many hits are
  -- about to take a slot, and the moment of the last write since they were decided.
  local function decide(value, cost, who)
    if value and value ~= HOLDERS then return end
    local key = who.key
    local last, expires = read(key)
    if last == false then return end
    local now, held, reset, ends = clock, 0, 0, nil
    if last and clock < expires then
      if last > clock + ARGV[1] then return nil, mend(key, last) end
      if last >= now then now = last + 1 end
      held = held_after(key, now)
      reset = expires - clock
      if who.holder ~= '' then
        ends = tonumber(call('ZSCORE', key, who.holder) or 0)
        if ends <= now then ends = nil end
      end
    end
    who.ends, who.last, who.held, who.expires = ends, last, held, expires or 0
    local remaining, retry, at = capacity - held, 0, now
    if remaining < 0 then remaining = 0 end
    if cost > 1 or cost == 1 and who.holder == '' or capacity == 0 and cost >= 0 then
      retry = NEVER
    elseif cost >= 0 then
      local pending = who.holder ~= '' and who.pending[key] or 0
      if ends then
        if cost == 1 then at = 0 end
      elseif held + pending >= capacity then
        retry = UNKNOWN
      elseif cost == 1 then
        who.pending[key] = pending + 1
      end
    end
    return remaining, retry, reset, 0, at, now, who
  end

  -- Returns the moment of a write: now, or later if the request has written since.
  local function moment_of(who, now)
    local wrote = who.wrote[who.key]
    return wrote and wrote >= now and wrote + 1 or now
  end

  local function release(who, now)
    local key = who.key
    now = moment_of(who, now)
    if not who.ends or who.ends <= now then return end
    call('ZREM', key, who.holder)
    local held = held_after(key, now)
    if held > 0 then
      who.wrote[key] = now
      call('ZADD', key, TOP + now, '')
      local _, expires = read(key)
      return HOLDERS, expires, held < capacity and capacity - held or 0
    end
    local last = who.wrote[key] or who.last
    who.wrote[key] = last
    if clock > last then return false, clock, capacity end
    call('ZREMRANGEBYRANK', key, 0, -2) -- all but the moment of the last write
    return HOLDERS, last + 1, capacity
  end

  local function charge(cost, now, at, _, who)
    if cost < 0 then return release(who, now) end
    if who.holder == '' then return end
    local key = who.key
    local held, expires = who.held + (who.ends and 0 or 1), now + hold
    local was_written = who.wrote[key]
    now = moment_of(who, now)
    call('ZADD', key, TOP + now, '', now + hold, who.holder)
    who.wrote[key] = now
    if was_written then held = held_after(key, now) end
    if was_written or expires < who.expires then
      local _
      _, expires = read(key)
    end
    local lapsed = call('ZCARD', key) - 1 - held
    if lapsed > 0 then
      call('ZREMRANGEBYRANK', key, 0, (lapsed < MAX_DROPPED and lapsed or MAX_DROPPED) - 1)
    end
    return HOLDERS, expires, held < capacity and capacity - held or 0, at > 0 and now or 0
  end

  local function give_back(_, now, _, _, who, taken)
    if who.ends == taken + hold then return release(who, now) end
  end

  return decide, charge, give_back, true
end
