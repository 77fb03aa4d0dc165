-- wrk's script: a request that no other equals, so that no cache answers it. STREAM=1 asks for a
-- stream, SAME=1 makes all requests equal, RUN tells the requests of one wrk from those of another.
local stream = os.getenv("STREAM") == "1" and "true" or "false"
local same = os.getenv("SAME") == "1"
local run = os.getenv("RUN") or "0"
local thread = 0
local count = 0

function setup(thread_)
  thread_:set("number", thread)
  thread = thread + 1
end

function request()
  count = count + 1
  local text = same and "Hello." or (run .. "-" .. number .. "-" .. count)
  local body = '{ "model": "m", "stream": ' .. stream
    .. ', "messages": [{ "role": "user", "content": "' .. text .. '" }] }'
  return wrk.format("POST", "/v1/chat/completions", {
    ["authorization"] = "Bearer sk-ada",
    ["content-type"] = "application/json",
  }, body)
end

-- The last line, for `measure`: requests, microseconds, within how many half and 99 of 100 were
-- answered, and how many failed.
function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  print(string.format("%d %d %d %d %d", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), failed))
end
