"""OpenAI's own client of the gateway: python sdk.py GATEWAY PROVIDER

What is not refused is not lost: a conversation goes on with the client's own objects, and the
provider, whose last request is at PROVIDER/seen, receives what was sent.
"""

import json
import sys
import urllib.request

import openai
import pydantic

gateway, provider = sys.argv[1:]
client = openai.OpenAI(base_url=gateway, api_key="sk-ada", max_retries=0)
numbers = iter(range(1000))

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def user(content="Hello."):
    """Returns a message that no other test sends: the gateway has a cache."""
    if isinstance(content, str):
        content = f"{next(numbers)} {content}"
    return {"role": "user", "content": content}


def ask(*messages, **more):
    return client.chat.completions.create(model="m", messages=list(messages), **more)


def seen():
    with urllib.request.urlopen(f"{provider}/seen") as answer:
        return json.load(answer)


def stream(*messages, **more):
    """Returns the message that the client puts together."""
    with client.chat.completions.stream(model="m", messages=list(messages), **more) as events:
        for _ in events:
            pass
        return events.get_final_completion()


def answered(call):
    return {"role": "tool", "tool_call_id": call.id, "content": "rain"}


def test_a_second_turn_with_every_form_of_the_first_answer():
    forms = [
        lambda message: message,
        lambda message: message.model_dump(),
        lambda message: message.model_dump(include={"role", "content", "tool_calls"}),
        lambda message: message.model_dump(exclude_unset=True),
        lambda message: message.model_dump(exclude_none=True),
        lambda message: json.loads(message.model_dump_json()),
    ]
    for form in forms:
        for of in [ask, stream]:
            first = user()
            message = of(first).choices[0].message
            assert (message.role, message.content) == ("assistant", "Hello.")
            ask(first, form(message), user("And then?"))
            back = seen()["messages"][1]
            assert back["role"] == "assistant" and back["content"] == "Hello.", back


def test_calls_of_tools_come_back_with_every_form():
    forms = [lambda message: message, lambda message: message.model_dump(), lambda message: message.to_dict()]
    for form in forms:
        for of in [ask, stream]:
            first = user("Call.")
            choice = of(first, tools=[TOOL]).choices[0]
            assert choice.finish_reason == "tool_calls", choice
            message = choice.message
            assert message.role == "assistant" and not message.content, message
            [call] = message.tool_calls
            assert (call.type, call.function.name) == ("function", "weather")
            assert json.loads(call.function.arguments) == {"city": "Oslo"}
            ask(first, form(message), answered(call), tools=[TOOL])
            _, back, result = seen()["messages"]
            assert back["tool_calls"][0]["function"]["name"] == "weather", back
            assert result["content"] == "rain", result


def test_the_first_chunk_has_the_role_and_the_last_one_the_tokens():
    chunks = list(ask(user(), stream=True, stream_options={"include_usage": True}))
    roles = [choice.delta.role for chunk in chunks for choice in chunk.choices]
    assert roles[0] == "assistant" and not any(roles[1:]), roles
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [4]
    assert len({chunk.id for chunk in chunks}) == 1


def test_reasoning_passes_in_both_directions():
    first = user()
    message = ask(first).choices[0].message
    assert message.reasoning_content == "Hm.", message
    deltas = [chunk.choices[0].delta for chunk in ask(user(), stream=True) if chunk.choices]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Hm."
    ask(first, message, user())
    assert seen()["messages"][1]["reasoning_content"] == "Hm."


def test_the_details_of_the_tokens_pass():
    streamed = stream(user(), stream_options={"include_usage": True})
    for usage in [ask(user()).usage, streamed.usage]:
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (10, 4, 14)
        assert usage.prompt_tokens_details.cached_tokens == 8
        assert usage.completion_tokens_details.reasoning_tokens == 3


def test_nested_fields_pass():
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
    text = {"type": "text", "text": f"{next(numbers)} What is it?"}
    ask(user([text, image]), tools=[TOOL], tool_choice="auto")
    last = seen()
    assert last["messages"][0]["content"] == [text, image], last
    assert last["tools"] == [TOOL], last


def test_settings_pass():
    ask(user(), reasoning_effort="low", seed=7, temperature=0.5, stop=["x"], parallel_tool_calls=None, n=openai.omit)
    last = seen()
    assert (last["reasoning_effort"], last["seed"], last["temperature"]) == ("low", 7, 0.5)
    ask(user(), tools=[TOOL], tool_choice={"type": "function", "function": {"name": "weather"}})
    assert seen()["tool_choice"] == {"type": "function", "function": {"name": "weather"}}


def test_typed_answers():
    class Greeting(pydantic.BaseModel):
        text: str

    messages = [user("Say it as JSON.")]
    parsed = client.chat.completions.parse(model="m", messages=messages, response_format=Greeting)
    message = parsed.choices[0].message
    assert message.parsed == Greeting(text="Hello.")
    sent = seen()["response_format"]["json_schema"]
    assert sent["strict"] is True and sent["name"] == "Greeting", sent
    ask(*messages, message.model_dump(), user())
    assert json.loads(seen()["messages"][1]["content"]) == {"text": "Hello."}


def test_what_would_be_lost_is_refused_by_name():
    cases = [
        ({"logprobs": True}, "logprobs"),
        ({"metadata": {"a": "b"}}, "metadata"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "include_obfuscation"),
        ({"tools": [{**TOOL, "cache_control": {"type": "ephemeral"}}]}, "cache_control"),
    ]
    for more, name in cases:
        try:
            ask(user(), **more)
        except openai.BadRequestError as error:
            assert f"`{name}`" in error.message, error
        else:
            raise AssertionError(f"{name} was accepted")


def test_errors_are_the_clients_own():
    try:
        ask({"role": "tool", "tool_call_id": "none", "content": "rain"})
    except openai.BadRequestError as error:
        assert error.param == "messages[0].tool_call_id", error
    else:
        raise AssertionError("a result of no call was accepted")


failed = 0
for name, test in list(globals().items()):
    if name.startswith("test_"):
        try:
            test()
        except Exception as error:
            failed += 1
            print(f"FAIL {name}: {type(error).__name__}: {error}")
        else:
            print(f"ok   {name}")
sys.exit(failed > 0)
