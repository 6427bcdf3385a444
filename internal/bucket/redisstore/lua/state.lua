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

local function is_whole(x)
  return x >= 0 and x <= 2^53 and x % 1 == 0
end

local function clear(s)
  s.last, s.expires, s.level, s.unit, s.spans = 0, 0, 0, 1, ''
  return true
end

-- The state in value, or false if it cannot be read.
local function read_state(kind, value)
  local s = {unit = 1, spans = ''}
  if not value then
    clear(s)
    return s
  end
  if kind <= LEAKY then
    if #value ~= 32 then return false end
    s.last, s.expires, s.level, s.unit = unpack_doubles('<dddd', value)
    if not is_whole(s.unit) or s.unit == 0 then return false end
  elseif kind == FIXED then
    if #value ~= 24 then return false end
    s.last, s.expires, s.level = unpack_doubles('<ddd', value)
  else
    if #value < 24 + SPAN or #value % SPAN ~= 0 then return false end
    s.last, s.expires, s.level = unpack_doubles('<ddd', value)
    s.spans = value:sub(25)
  end
  if not (is_whole(s.last) and is_whole(s.expires) and is_whole(s.level)) then return false end
  return s
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
