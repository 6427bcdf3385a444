-- Changes parts of assignments of one hash tag, all in one step, and records each
-- change.
--
-- KEYS[1]  the assignments: a hash, by the text of the subject
-- KEYS[2]  the changes: a stream
-- ARGV[1]  empty; in tests the clock, in microseconds
-- ARGV[2]  about how many changes the stream keeps
-- ARGV[3]  1 if the same was sent before and the reply was lost: what is in force
--          as it was asked for is then no conflict
-- ARGV[4]  1 if form 1 alone may be written, since some daemon reads no other; 2 if some
--          reads form 2 without a calendar
-- ARGV[5]  how many numbers an assignment may have
-- ARGV[6]  the last change that the caller knows of the tag, or empty
-- ARGV[7]  the newest change of the tag, as far as the caller knows, or 0-0
-- ARGV[8]  and so on, 6 for each change: the text of the subject; the subject as
--          JSON; the version that must be in force, 'none', or empty; who makes
--          it; why, or empty; and the change as JSON:
--            rest     whether all parts go but the block
--            numbers  whether all numbers go
--            remove   the names of parts that go
--            set      parts that are set then, each a name, a text and an end
--            named    the parts of all these, for the record: see touched.go
-- reply    'LOST' alone if some are gone, and nothing was changed; or 'NEWER' and the
--          newest change if these subjects may have changed since ARGV[7], and nothing
--          was changed; else the
--          ID of the last change in the stream, then 3 for each change: its
--          outcome, what was in force before and what is after, or empty
--
-- An assignment is stored as a JSON object of form 1 or form 2. Both begin with etag,
-- which is the ID of its change, at and by. Form 1 has a field for each kind of part,
-- and one end for all but the block; it is written wherever it can say what is meant,
-- since all versions read it. Form 2 has
--   "parts": {name: [text, end]}
-- of texts, which this script carries as they are: those of parts that it does not
-- know too. cjson reads whole numbers below 2^53 and periods, which are whole
-- milliseconds, exactly, but writes 14 digits and makes {} of []. So it writes texts
-- alone. What cannot be read, and what has ended, counts as absent.

local CREATED, REPLACED, UNCHANGED, DELETED, CONFLICT, TOO_MANY, NEEDS_PARTS = 1, 2, 3, 4, 5, 6, 7

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local function exact(number) return string.format('%.0f', number) end
local moment = exact(now)

-- A text as JSON. A slash needs no escape.
local function encode(text) return (cjson.encode(text):gsub('\\/', '/')) end

local function text_or_empty(value) return type(value) == 'string' and value or '' end
local function is_limit(name) return name:sub(1, 6) == 'limit ' end
local function has_ended(ends) return ends ~= '' and tonumber(ends) <= now end

-- Numbers as the text of a part.
local function numbers_text(n)
  local text = '{"requests":' .. exact(n.requests)
  if n.period then text = text .. ',"period":' .. exact(n.period) end
  if n.burst then text = text .. ',"burst":' .. exact(n.burst) end
  return text .. '}'
end

-- The parts of a decoded assignment: by name a text and an end, which may be empty.
local function parts_of(a)
  local parts = {}
  if a.parts then
    for name, part in pairs(a.parts) do
      assert(type(part[1]) == 'string' and type(part[2]) == 'string')
      parts[name] = {part[1], part[2]}
    end
    return parts
  end
  local function end_of(number) return number and number ~= 0 and exact(number) or '' end
  local ends = end_of(a['until'])
  if a.plan then
    assert(type(a.plan) == 'string')
    parts.plan = {a.plan, ends}
  end
  if a.unlimited == true then parts.unlimited = {'true', ends} end
  if a.blocked == true then parts.block = {'true', end_of(a.blocked_until)} end
  for _, n in ipairs(a.numbers or {}) do
    parts['limit ' .. (n.limit or '')] = {numbers_text(n), ends}
  end
  return parts
end

-- What is in force of a stored assignment. It fails on what it cannot read.
local function read(value)
  local a = cjson.decode(value)
  assert(type(a.etag) == 'string')
  local held = {
    etag = a.etag, by = text_or_empty(a.by), reason = text_or_empty(a.reason), parts = {}, text = value,
    at = exact(type(a.at) == 'number' and a.at or 0),
  }
  for name, part in pairs(parts_of(a)) do
    if has_ended(part[2]) then
      held.text = nil -- which says more than is in force
    else
      held.parts[name] = part
    end
  end
  return next(held.parts) and held
end

-- Whether form 1 can say that a limit has these numbers.
local function is_plain(text)
  local ok, plain = pcall(function() return numbers_text(cjson.decode(text)) == text end)
  return ok and plain
end

-- The end of all parts but the block if form 1 can say these parts, or nil.
local function form1_end(parts)
  local ends, alone = nil, true
  for name, part in pairs(parts) do
    local known = name == 'plan' or part[1] == 'true' and (name == 'block' or name == 'unlimited')
    if not known and not (is_limit(name) and is_plain(part[1])) then return nil end
    if name ~= 'block' then
      if ends and ends ~= part[2] then return nil end
      ends = part[2]
      alone = alone and name == 'unlimited'
    end
  end
  if parts.unlimited and not alone then return nil end
  return ends or ''
end

local function sorted_names(parts)
  local names = {}
  for name in pairs(parts) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function form1(parts, ends)
  local text = ''
  if parts.plan then text = text .. ',"plan":' .. encode(parts.plan[1]) end
  local numbers = {}
  for _, name in ipairs(sorted_names(parts)) do
    if is_limit(name) then
      local limit, rest = name:sub(7), parts[name][1]:sub(2)
      numbers[#numbers + 1] = (limit == '' and '{' or '{"limit":' .. encode(limit) .. ',') .. rest
    end
  end
  if #numbers > 0 then text = text .. ',"numbers":[' .. table.concat(numbers, ',') .. ']' end
  if parts.unlimited then text = text .. ',"unlimited":true' end
  if parts.block then
    text = text .. ',"blocked":true'
    if parts.block[2] ~= '' then text = text .. ',"blocked_until":' .. parts.block[2] end
  end
  if ends ~= '' then text = text .. ',"until":' .. ends end
  return text
end

local function form2(parts)
  local all = {}
  for _, name in ipairs(sorted_names(parts)) do
    all[#all + 1] = encode(name) .. ':[' .. encode(parts[name][1]) .. ',' .. encode(parts[name][2]) .. ']'
  end
  return ',"parts":{' .. table.concat(all, ',') .. '}'
end

-- When the last part ends, or an empty text.
local function last_end(parts)
  local last = '0'
  for _, part in pairs(parts) do
    if part[2] == '' then return '' end
    if tonumber(part[2]) > tonumber(last) then last = part[2] end
  end
  return last
end

-- An assignment as it is stored, without the brace and the etag that it begins with.
local function body(subject, a)
  local ends, last = form1_end(a.parts), last_end(a.parts)
  local text = '"at":' .. a.at .. ',"by":' .. encode(a.by) .. ',' .. subject:sub(2, -2)
  text = text .. (ends and form1(a.parts, ends) or form2(a.parts))
  if a.reason ~= '' then text = text .. ',"reason":' .. encode(a.reason) end
  if last ~= '' then text = text .. ',"ends":' .. last end
  return text .. '}'
end

local function equal(parts, others)
  for name, part in pairs(parts) do
    local other = others[name]
    if not other or other[1] ~= part[1] or other[2] ~= part[2] then return false end
  end
  for name in pairs(others) do
    if not parts[name] then return false end
  end
  return true
end

-- What a change makes of parts, and how many of these are numbers.
local function changed(parts, change)
  local after, numbers = {}, 0
  for name, part in pairs(parts) do
    local gone = change.rest and name ~= 'block' or change.numbers and is_limit(name)
    if not gone then after[name] = part end
  end
  for _, name in ipairs(change.remove) do after[name] = nil end
  for _, set in ipairs(change.set) do
    after[set[1]] = not has_ended(set[3]) and {set[2], set[3]} or nil
  end
  for name in pairs(after) do
    if is_limit(name) then numbers = numbers + 1 end
  end
  return after, numbers
end

-- It tells assignments that were all removed from those that were lost.
local epoch = redis.call('HGET', KEYS[1], '~epoch')
if not epoch and ARGV[6] ~= '' then return {'LOST'} end

local stored = {}
local function held_of(text)
  if stored[text] == nil then stored[text] = redis.call('HGET', KEYS[1], text) end
  local ok, held = pcall(read, stored[text]) -- false where there is none
  return ok and held or nil
end

-- Both keys are read before the first write: a key of another type fails here or above.
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local last = newest and newest[1] or '0-0'

local function is_before(id, other)
  local ms, seq = id:match('^(%d+)%-(%d+)$')
  local other_ms, other_seq = other:match('^(%d+)%-(%d+)$')
  if ms ~= other_ms then return tonumber(ms) < tonumber(other_ms) end
  return tonumber(seq) < tonumber(other_seq)
end
-- What is there has to go on from what the caller knows, as long as that was not removed
-- for its age. It does not where somebody put back who had not seen it, though the record
-- of that is newer. A stream that is empty was evicted, and the assignments are whole.
if newest and ARGV[6] ~= '' then
  local first = redis.call('XRANGE', KEYS[2], ARGV[6], '+', 'COUNT', 1)[1]
  if not first then return {'LOST'} end
  if first[1] ~= ARGV[6] then
    for i = 1, #first[2], 2 do
      if first[2][i] == 'p' and is_before(first[2][i + 1], ARGV[6]) then return {'LOST'} end
    end
  end
end

-- A call whose maker has given it up may lie in the network and arrive seconds later, by
-- when others have changed what it is about. It was sent for what was newest then, so it
-- undoes nothing of that; a maker who is still there sends it again for what is newest now.
-- What others have changed since of other subjects makes no difference.
local is_ours = {}
for i = 8, #ARGV, 6 do is_ours[ARGV[i + 1]] = true end

local function is_of_others(record)
  local fields = {}
  for i = 1, #record, 2 do fields[record[i]] = record[i + 1] end
  if fields.kind == 'reset' then return true end
  -- A change that finds nothing may be of a whole domain, as one without entries is.
  local is_change = fields.kind == 'assigned' or fields.kind == 'unassigned' and fields.before ~= ''
  return is_change and not is_ours[fields.subject]
end

local function all_are_of_others()
  if not ARGV[8]:find('|', 1, true) then return false end
  local since = redis.call('XRANGE', KEYS[2], ARGV[7], '+', 'COUNT', 100)
  if #since == 100 or not since[1] or since[1][1] ~= ARGV[7] then return false end
  for i = 2, #since do
    if not is_of_others(since[i][2]) then return false end
  end
  return true
end
if last ~= ARGV[7] and not all_are_of_others() then return {'NEWER', last} end

local refusal = refusal_of({{'XADD', KEYS[2], '*', 'f', 'v'}, {'HSET', KEYS[1], 'f', 'v'}, {'HDEL', KEYS[1], 'f'}})
if refusal then return refusal end

local previous = continues_from(newest and newest[1], epoch)
local function record(kind, subject, by, reason, before, after, named, same)
  last = redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', 'kind', kind, 'subject', subject,
    'by', by, 'reason', reason, 'before', before, 'after', after, 'named', named, 'same', same, 'p', previous)
  previous = last
  if not epoch then
    epoch = last
    redis.call('HSET', KEYS[1], '~epoch', epoch)
  end
  return last
end

-- Where a daemon has put back what Redis had lost, another one may come with something newer.
-- It leaves what was changed since. So a change that finds all as it should be is written
-- there too, as a change that changes nothing, unless the last one says the same already.
local restored = epoch and epoch:match(' restored (%d+%-%d+)$')

-- Whether the last change of an assignment names all parts that a change names, and is newer
-- than what was put back.
local function is_said(held, change)
  if not held.etag:match('^%d+%-%d+$') or is_before(held.etag, restored) then return false end
  local entry = redis.call('XRANGE', KEYS[2], held.etag, held.etag)[1]
  local ok, named
  for i = 1, entry and #entry[2] or 0, 2 do
    if entry[2][i] == 'named' then ok, named = pcall(cjson.decode, entry[2][i + 1]) end
  end
  if not ok or type(named) ~= 'table' or type(named.names) ~= 'table' then return false end
  if change.rest and not named.rest or change.numbers and not (named.numbers or named.rest) then return false end
  local names = {}
  for _, name in ipairs(named.names) do names[name] = true end
  local function has(name)
    return names[name] or named.rest and name ~= 'block' or named.numbers and is_limit(name)
  end
  for _, name in ipairs(change.remove) do
    if not has(name) then return false end
  end
  for _, set in ipairs(change.set) do
    if not has(set[1]) then return false end
  end
  return true
end

local reply = {''}
for i = 8, #ARGV, 6 do
  local text, subject, match, by, reason, asked = unpack(ARGV, i, i + 5)
  local change = cjson.decode(asked)
  local held = held_of(text)
  local parts, numbers = changed(held and held.parts or {}, change)
  local is_left = next(parts) ~= nil
  local a = {at = moment, by = by, parts = parts, reason = reason}

  local before = ''
  if held then before = held.text or '{"etag":' .. encode(held.etag) .. ',' .. body(subject, held) end
  local same = not held and not is_left
  if held and equal(parts, held.parts) then same = #change.set == 0 or reason == '' or reason == held.reason end
  local wanted = match == '' or (match == 'none' and not held) or (held and match == held.etag)
  if not wanted and ARGV[3] == '1' then wanted = same end

  local outcome, after = nil, before
  if not wanted then
    outcome = CONFLICT
  elseif same then
    outcome = UNCHANGED
    if restored and not held then
      record('unassigned', subject, by, reason, '', '', change.named, '1')
    elseif restored and not is_said(held, change) then
      local rest = body(subject, held)
      local id = record('assigned', subject, by, reason, before, '{' .. rest, change.named, '1')
      after = '{"etag":"' .. id .. '",' .. rest
      redis.call('HSET', KEYS[1], text, after)
      stored[text] = after
    end
  elseif not is_left then
    outcome, after = DELETED, ''
    record('unassigned', subject, by, reason, before, '', change.named, '')
    redis.call('HDEL', KEYS[1], text)
    stored[text] = false
  elseif numbers > tonumber(ARGV[5]) then
    outcome = TOO_MANY
  elseif ARGV[4] == '1' and not form1_end(parts) or ARGV[4] == '2' and parts.calendar then
    outcome = NEEDS_PARTS
  else
    outcome = held and REPLACED or CREATED
    local rest = body(subject, a)
    local id = record('assigned', subject, by, reason, before, '{' .. rest, change.named, '')
    after = '{"etag":"' .. id .. '",' .. rest
    redis.call('HSET', KEYS[1], text, after)
    stored[text] = after
  end
  reply[#reply + 1] = outcome
  reply[#reply + 1] = before
  reply[#reply + 1] = after
end
reply[1] = last
return reply
