-- Asks all daemons that listen.
--
-- KEYS[1]  the stream of questions
-- ARGV[1]  the ID of the daemon that asks
-- ARGV[2]  the question
-- ARGV[3]  how long the stream lives without another question, in ms
-- reply    the ID of the question
--
-- The stream expires by the call that writes it.

local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', 100, '*', 'from', ARGV[1], 'question', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return id
