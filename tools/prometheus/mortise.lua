-- What redis_exporter collects of locks with `-script mortise.lua`: the numbers of INFO lock, and of LOCK.TOP's first lock, without its name.
local values = {}
local function add(name, value) values[#values + 1] = name; values[#values + 1] = tostring(value) end
for name, value in redis.call('INFO', 'lock'):gmatch('lock_([%w_]+):(%d+)') do add(name, value) end
-- No such series where the module is missing, or the exporter's user may not ask.
local top = redis.pcall('LOCK.TOP', 'COUNT', 1)
if not top.err then
    local lock = top[1] or {}
    for at = 1, #lock, 2 do lock[lock[at]] = lock[at + 1] end
    add('top_waiters', lock.waiters or 0)
    add('top_oldest_ms', lock.oldest or 0)
end
return values
