-- wrk's script: a request that no other equals, so that no cache answers it. STREAM=1 asks for a
-- stream, SAME=1 makes all requests equal.
local stream = os.getenv("STREAM") == "1" and "true" or "false"
local same = os.getenv("SAME") == "1"
local thread = 0
local count = 0

function setup(thread_)
  thread_:set("number", thread)
  thread = thread + 1
end

function request()
  count = count + 1
  local text = same and "Hello." or (number .. "-" .. count)
  local body = '{ "model": "m", "stream": ' .. stream
    .. ', "messages": [{ "role": "user", "content": "' .. text .. '" }] }'
  return wrk.format("POST", "/v1/chat/completions", {
    ["authorization"] = "Bearer ada",
    ["content-type"] = "application/json",
  }, body)
end
