-- Decides requests, each a group of hits, atomically, and keeps the limits' states.
--
-- KEYS     the distinct keys of the requests; on a cluster all have one hash tag
-- ARGV[1]  how far ahead of the clock a state's last moment may lie, in
--          microseconds: a wrong clock wrote what is further ahead
-- ARGV[2]  the distinct limits of the requests, 8 doubles each (main.lua)
-- ARGV[3]  the distinct requests, doubles too (main.lua)
-- ARGV[4]  missing; in tests the clock, in microseconds
-- reply    flat integers: the clock, how many states a wrong clock had written,
--          then the results of each request (main.lua)
--
-- The script is, in this order: state.lua, a local with its number for each algorithm
-- (TOKEN_BUCKET) and CALENDAR, the algorithms, bills.lua and pauses.lua, and main.lua.
-- Every number is whole and under 2^53, so doubles compute exactly. Calls cost more
-- than arithmetic here, so quotients are rounded by remainders:
--   a / b rounded down   (a - a % b) / b
--   a / b rounded up     (a + -a % b) / b, as long as a + b is under 2^53 too
--
-- A state is a string of little-endian doubles:
--   buckets          last, expires, level, unit
--   fixed_window     last, expires, level
--   sliding windows  last, expires, level, then (first, last, count) a span
-- The state of a concurrency is a sorted set instead. The score of each holder is the
-- moment when its hold ends. The empty name is above all, with the score 2^52 + the
-- moment of the last write.
-- After any other state may come a pause: its beginning, and minus its end, the one
-- negative number in a value. It may be all of the value.
-- Beside a state may be bills, see bills.lua.
-- All moments are microseconds since the epoch; the fields mean the same as those of
-- State in Go. No value means that there is nothing to remember.
--
-- makers has a function for each algorithm, and for fixed_window with a calendar. From
-- charging, capacity, the numbers of a limit and its leeway it makes the three steps of
-- step.go. It also returns how many units of a level are a cost of 1, if not one; whether
-- hits name holders, so that a negative cost is charged whatever its request gets; and how
-- long before its state expires a limit is full again, if not then. States go in and out
-- packed. HOLDERS in place of a value means a sorted set that a step has
-- written. HOLDERS[key] is the moment when Redis may forget the set; the moment that the
-- step returns is only for the reset, which counts from the key's own moment.
--   decide(value, cost, who)  returns remaining, retry, reset, wait, at, and for the
--     other two steps level and rest: what the state holds at that moment, and
--     what else they need of it. Of a concurrency, wait is FreeAtLatest where retry is
--     UNKNOWN, the Released of a release, and the Renewal of a take. It returns nothing
--     if value cannot be read. If a wrong clock wrote it: nil, the value that Mend in Go
--     makes of it, and the moment when that expires; the caller keeps this value and
--     decides on it. If its limit came with windows that this moment is not in: nil,
--     nil, and the moment. who is nil, or, for a hit that may name a holder, its key and
--     holder, and what is pending in its request.
--   charge(cost, level, at, value, rest)  returns the value to keep, or false
--     if there is nothing to remember; the moment when it expires; what remains;
--     and the hit's moment, if it differs from at. Nothing, if the state stays as
--     it is.
--   give_back(cost, level, at, value, rest, taken, bill, i)  the same; taken is the
--     moment of the take, which took cost, or is portion i of the bill if there is one.

local call, pack, unpack_doubles = redis.call, struct.pack, struct.unpack

local makers = {}

local MAX_LEVEL = 2^52
local NEVER, UNKNOWN = -1, -2
local HOLDERS = {}
-- Nothing is remembered for longer. This is more than maxDrain in Go, and 8 times this
-- is under 2^53.
local MAX_REMEMBERED = 2^49
-- The values of Charging in Go.
local CHARGES_ADMITTED, CHARGES_USE, CHARGES_REPORTED = 0, 1, 2

local clock = tonumber(ARGV[4])
if not clock then
  local time = call('TIME')
  clock = time[1] * 1000000 + time[2]
end

-- Whether these can begin a state; NaN cannot.
local function are_readable(last, expires, level)
  return last >= 0 and last <= expires and expires - last <= MAX_REMEMBERED and expires <= 2^53
    and level >= 0 and level <= 2^53
    and last % 1 + expires % 1 + level % 1 == 0
end

-- Returns a state without the pause at its end: false if nothing is left, or value if it
-- has no pause; and the beginning and end of the pause.
local function split_pause(value)
  local size = value and #value - 16 or -1
  if size < 0 or value:byte(-1) < 128 then return value end
  local began, ends = unpack_doubles('<dd', value, size + 1)
  return size > 0 and value:sub(1, size), began, -ends
end
