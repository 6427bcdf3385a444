-- Decides groups of hits atomically, and keeps the limits' states.
--
-- KEYS     the distinct keys of the groups; on a cluster all have one hash tag
-- ARGV[1]  how far ahead of the clock a state's last moment may lie, in
--          microseconds: what lies further was written by a wrong clock
-- ARGV[2]  the distinct limits of the groups, 7 doubles each (main.lua)
-- ARGV[3]  the lines: groups of hits, doubles too (main.lua)
-- ARGV[4]  none; tests put the clock here, in microseconds
-- reply    flat integers: the clock, how many states a wrong clock had written,
--          then what came of each line (main.lua)
--
-- The script is state.lua, an algorithm a file, and main.lua, in this order.
-- Every number is a whole one under 2^53, so doubles compute exactly. Calls
-- cost more than arithmetic here, so quotients are rounded by remainders:
--   a / b rounded down   (a - a % b) / b
--   a / b rounded up     (a + -a % b) / b, as long as a + b is under 2^53 too
--
-- A state is a string of little-endian doubles:
--   buckets          last, expires, level, unit
--   fixed_window     last, expires, level
--   sliding windows  last, expires, level, then (first, last, count) a span
-- All moments are microseconds since the epoch; the fields mean what those of
-- State in Go do. No value means that there is nothing to remember.
--
-- An algorithm is a function that makes, of a limit's numbers, the three steps
-- of step.go. States go in and out packed:
--   decide(value, cost)  returns remaining, retry, reset, wait, at, and for the
--     other two steps level and rest: what the state holds at that moment, and
--     what else they need of it. Nothing, if value cannot be read. If a wrong
--     clock wrote it: nil, the value that Mend in Go makes of it, and the moment
--     when that expires; it is to be kept, and decided on.
--   charge(cost, level, at, value, rest)  returns the value to keep, or false
--     if there is nothing to remember; the moment when it expires; and what
--     remains. Nothing, if the state stays as it is.
--   give_back(cost, level, at, value, rest, taken)  the same; taken is the
--     moment of the take.

local call, pack, unpack_doubles = redis.call, struct.pack, struct.unpack

local MAX_LEVEL = 2^52
local NEVER = -1
-- The values of Charging in Go.
local CHARGES_ADMITTED, CHARGES_USE, CHARGES_REPORTED = 0, 1, 2

local clock = tonumber(ARGV[4])
if not clock then
  local time = call('TIME')
  clock = time[1] * 1000000 + time[2]
end

-- Whether these can begin a state; NaN cannot.
local function are_readable(last, expires, level)
  return last >= 0 and last <= expires and expires <= 2^53
    and level >= 0 and level <= 2^53
    and last % 1 + expires % 1 + level % 1 == 0
end
