-- Decides groups of hits atomically, and keeps the limits' states.
--
-- KEYS     the distinct keys of the batch; on a cluster all have one hash tag
-- ARGV[1]  empty; tests put the clock here, in microseconds
-- ARGV[2]  the distinct limits of the batch, 7 doubles each (batch.lua)
-- ARGV[3]  the groups of hits, doubles too (batch.lua)
-- reply    flat integers; for each group its status, then for each of its hits
--          remaining, retry_after, reset_after, wait, at (batch.lua)
--
-- The script is state.lua, an algorithm a file, and batch.lua, in this order.
-- Every number is a whole one under 2^53, so doubles compute exactly; a
-- quotient of two such numbers has the right floor and ceiling.
--
-- A state is a string of little-endian doubles:
--   buckets          last, expires, level, unit
--   fixed_window     last, expires, level
--   sliding windows  last, expires, level, then (first, last, count) a span
-- All moments are microseconds since the epoch; the fields mean what those of
-- State in Go do. No value means that there is nothing to remember.
--
-- The functions that charge or give back return whether they wrote the state.

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local pack, unpack_doubles = struct.pack, struct.unpack

local MAX_LEVEL = 2^52
local MAX_SPANS = 1000
local SPAN = 24 -- bytes
local NEVER = -1
local MAX_UNPACKED = 1000 -- Lua's stack holds some 8,000

local BUCKET, LEAKY, FIXED, SLIDING, DENIED = 1, 2, 3, 4, 5

-- Whether these are whole numbers from 0 to 2^53; NaN is not.
local function are_whole(a, b, c)
  return a >= 0 and a <= 2^53 and a % 1 == 0
    and b >= 0 and b <= 2^53 and b % 1 == 0
    and c >= 0 and c <= 2^53 and c % 1 == 0
end

local function clear(s)
  s.last, s.expires, s.level, s.unit, s.spans = 0, 0, 0, 1, ''
  return true
end

-- The state in value, or false if it cannot be read.
local function read_state(kind, value)
  local s = {last = 0, expires = 0, level = 0, unit = 1, spans = ''}
  if not value then return s end
  if kind <= LEAKY then
    if #value ~= 32 then return false end
    s.last, s.expires, s.level, s.unit = unpack_doubles('<dddd', value)
    if not are_whole(s.unit, 0, 0) or s.unit == 0 then return false end
  elseif kind == FIXED then
    if #value ~= 24 then return false end
    s.last, s.expires, s.level = unpack_doubles('<ddd', value)
  else
    if #value < 24 + SPAN or #value % SPAN ~= 0 then return false end
    s.last, s.expires, s.level = unpack_doubles('<ddd', value)
    s.spans = value:sub(25)
  end
  return are_whole(s.last, s.expires, s.level) and s
end

local function write_state(kind, s)
  if kind <= LEAKY then return pack('<dddd', s.last, s.expires, s.level, s.unit) end
  return pack('<ddd', s.last, s.expires, s.level) .. s.spans
end

-- How much of the capacity must be free for a hit of cost.
local function claim_of(l, cost)
  if cost < 0 then return 0 end
  if cost == 0 or l.postpaid then return 1 end
  return cost
end
