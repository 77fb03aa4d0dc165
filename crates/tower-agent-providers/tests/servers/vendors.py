"""Validates request bodies by the types of the vendors' own packages, unknown fields forbidden.

Reads one JSON object a line from standard input, with `protocol` and `body`, and writes one line for
each: the empty one, or why the body is not valid.
"""

import json
import sys

import anthropic.types.message_create_params as anthropic
import openai.types.chat.completion_create_params as chat
import openai.types.responses.response_create_params as responses
from google.genai import interactions, types
from pydantic import ConfigDict, TypeAdapter, create_model
from pydantic_core import SchemaValidator, ValidationError

# The body of `generateContent`; its package has no type of it.
GenerateContent = create_model(
    "GenerateContent",
    __config__={"extra": "forbid"},
    contents=(list[types.Content], ...),
    systemInstruction=(types.Content | None, None),
    tools=(list[types.Tool] | None, None),
    toolConfig=(types.ToolConfig | None, None),
    safetySettings=(list[types.SafetySetting] | None, None),
    generationConfig=(types.GenerationConfig | None, None),
    cachedContent=(str | None, None),
)


def strict(schema):
    """Returns a schema that forbids unknown fields and reads lists to their ends."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if isinstance(schema, tuple):
        return tuple(strict(part) for part in schema)
    if not isinstance(schema, dict):
        return schema
    schema = {name: strict(part) for name, part in schema.items()}
    if schema.get("type") in ("typed-dict", "model-fields"):
        schema["extra_behavior"] = "forbid"
    if schema.get("type") == "model":
        schema["config"] = {**schema.get("config", {}), "extra_fields_behavior": "forbid"}
    if schema.get("type") == "generator":
        # Otherwise its items are not looked at.
        schema = {"type": "list", "items_schema": schema.get("items_schema", {"type": "any"})}
    return schema


def complete(value):
    """Adds what the API has a default for, and its package requires."""
    if isinstance(value, list):
        return [complete(part) for part in value]
    if not isinstance(value, dict):
        return value
    value = {name: complete(part) for name, part in value.items()}
    if value.get("type") == "input_image":
        value.setdefault("detail", "auto")
    return value


def validator(of):
    # Some take open files in the place of their contents.
    of.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)
    return SchemaValidator(strict(TypeAdapter(of).core_schema))


PROTOCOLS = {
    "chat": (
        validator(chat.CompletionCreateParamsNonStreaming),
        validator(chat.CompletionCreateParamsStreaming),
    ),
    "responses": (
        validator(responses.ResponseCreateParamsNonStreaming),
        validator(responses.ResponseCreateParamsStreaming),
    ),
    "anthropic": (
        validator(anthropic.MessageCreateParamsNonStreaming),
        validator(anthropic.MessageCreateParamsStreaming),
    ),
    "gemini": (TypeAdapter(GenerateContent).validator,) * 2,
    "interactions": (
        validator(interactions.CreateModelInteractionParamsNonStreaming),
        validator(interactions.CreateModelInteractionParamsStreaming),
    ),
}

for line in sys.stdin:
    request = json.loads(line)
    body = request["body"]
    plain, streamed = PROTOCOLS[request["protocol"]]
    try:
        (streamed if body.get("stream") else plain).validate_python(complete(body))
        print()
    except ValidationError as error:
        print(json.dumps(error.errors(include_url=False), default=str))
    sys.stdout.flush()
