"""Runs programs on Google's ADK: python original.py CASES

Each program is a tree of agents whose models say what the case file tells them. Printed is, for each
program by its name, what happened, in the form that `seen.rs` has as well.
"""

import asyncio
import json
import logging
import re
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

# The call that asks about another.
CONFIRMATION = "adk_request_confirmation"
IDENTITY = "You are an agent. Your internal name is "
QUOTE = re.compile(
    r"\[(?P<author>[^\]]*)\] (?:(?P<said>said)|called tool `(?P<tool>[^`]*)` with parameters"
    r"|`(?P<answered>[^`]*)` tool returned result):\n[^\n]*\n(?P<body>.*)\n[^\n]*",
    re.DOTALL,
)


def parts_of(turn):
    """Returns the parts of what a model says: a text, a call, or a list of both."""
    parts = []
    for part in turn if isinstance(turn, list) else [turn]:
        if isinstance(part, str):
            parts.append(types.Part(text=part))
        elif "transfer" in part:
            arguments = {"agent_name": part["transfer"]}
            parts.append(types.Part.from_function_call(name="transfer_to_agent", args=arguments))
        else:
            parts.append(types.Part.from_function_call(name=part["call"], args=part.get("args", {})))
    return parts


def shown(value, tool):
    """Returns the value of a tool as its caller's model reads it."""
    if isinstance(value, dict) and "error" in value:
        return "error"
    if tool == "transfer_to_agent":
        return "ok"
    if isinstance(value, dict) and list(value) == ["result"]:
        return value["result"]
    return value


def piece(role, part):
    """Returns one part of a message in the common form."""
    if part.function_call:
        return ["call", part.function_call.name, dict(part.function_call.args or {})]
    if part.function_response:
        name = part.function_response.name
        return ["result", name, shown(part.function_response.response, name)]
    quote = QUOTE.fullmatch(part.text or "")
    if quote is None:
        return [role, part.text]
    author, body = quote["author"], quote["body"]
    if quote["said"]:
        return ["quote", author, "said", body]
    if quote["tool"]:
        return ["quote", author, "called", quote["tool"], eval(body, {})]
    name = quote["answered"]
    return ["quote", author, "read", name, shown(eval(body, {}), name)]


def contents_of(request):
    pieces = []
    for content in request.contents:
        said = [piece(content.role, part) for part in content.parts]
        # A quotation begins with a sentence about quotations.
        if any(part[0] == "quote" for part in said):
            said = [part for part in said if part[0] == "quote"]
        pieces.extend(said)
    return pieces


class Script(BaseLlm):
    """A model that says the next line."""

    model: str = "script"
    lines: list = []
    seen: list = []

    async def generate_content_async(self, request, stream=False):
        tools = []
        transfer = []
        for tool in request.config.tools or []:
            for declaration in tool.function_declarations:
                if declaration.name == "transfer_to_agent":
                    schema = declaration.parameters_json_schema
                    if schema is None:
                        schema = declaration.parameters.model_dump(exclude_none=True)
                    transfer = schema["properties"]["agent_name"]["enum"]
                else:
                    tools.append(declaration.name)
        instruction = request.config.system_instruction or ""
        if IDENTITY in instruction:
            instruction = instruction[: instruction.index(IDENTITY)].rstrip("\n")
        self.seen.append(
            {
                "contents": contents_of(request),
                "tools": sorted(tools),
                "transfer": transfer,
                "instruction": instruction,
            }
        )
        if not self.lines:
            raise RuntimeError("the script is over")
        line = self.lines.pop(0)
        if isinstance(line, dict) and "error" in line:
            raise RuntimeError(line["error"])
        yield LlmResponse(content=types.Content(role="model", parts=parts_of(line)))


def is_pause(part):
    """Returns whether a part says that a call waits for a person, which here no message does."""
    if part.function_call:
        return part.function_call.name == CONFIRMATION
    response = part.function_response and part.function_response.response
    return "requires confirmation" in (response or {}).get("error", "")


def waiting(event):
    """Returns the calls of an event that wait for an answer."""
    calls = event.get_function_calls()
    return [call for call in calls if call.id in (event.long_running_tool_ids or ())]


def name_of(call):
    """Returns the name of a call that waits, or of the one that it asks about."""
    return call.args["originalFunctionCall"]["name"] if call.name == CONFIRMATION else call.name


def filled(text, state):
    return re.sub(r"\{(\w+)\}", lambda key: str(state.get(key[1])), text)


class Program:
    def __init__(self, case):
        self.case = case
        self.log = []
        self.models = {}

    # Tools, by their names.

    def tool(self, name):
        def look(tool_context: ToolContext):
            return {"found": "it"}

        def mark(value: str, tool_context: ToolContext):
            tool_context.state["mark"] = value
            return {"marked": value}

        def fail(tool_context: ToolContext):
            raise ValueError("broken")

        def leave(tool_context: ToolContext):
            tool_context.actions.escalate = True
            return {"left": True}

        # Its result comes later.
        def wait(tool_context: ToolContext):
            return None

        def pay(tool_context: ToolContext):
            return {"paid": True}

        if name == "wait":
            return LongRunningFunctionTool(wait)
        if name == "pay":
            return FunctionTool(pay, require_confirmation=True)
        return FunctionTool({"look": look, "mark": mark, "fail": fail, "leave": leave}[name])

    # Callbacks, which write down that they ran.

    def content(self, do, state):
        if "say" in do:
            return types.Content(role="model", parts=[types.Part(text=filled(do["say"], state))])
        return None

    def act(self, where, do, context):
        self.log.append(where)
        do = do or {}
        for key, value in do.get("set", {}).items():
            context.state[key] = value
        if do.get("escalate"):
            context.actions.escalate = True
        if "fail" in do:
            raise RuntimeError(do["fail"])
        return do

    def hook(self, where, kind, do):
        def of_agent(callback_context):
            done = self.act(where, do, callback_context)
            return self.content(done, callback_context.state)

        def before_model(callback_context, llm_request):
            done = self.act(where, do, callback_context)
            if "add" in done:
                llm_request.append_instructions([done["add"]])
            if "says" in done:
                parts = parts_of(done["says"])
                return LlmResponse(content=types.Content(role="model", parts=parts))
            content = self.content(done, callback_context.state)
            return content and LlmResponse(content=content)

        def after_model(callback_context, llm_response):
            done = self.act(where, do, callback_context)
            if "says" in done:
                parts = parts_of(done["says"])
                return LlmResponse(content=types.Content(role="model", parts=parts))
            content = self.content(done, callback_context.state)
            return content and LlmResponse(content=content)

        def on_model_error(callback_context, llm_request, error):
            done = self.act(where, do, callback_context)
            content = self.content(done, callback_context.state)
            return content and LlmResponse(content=content)

        def before_tool(tool, args, tool_context):
            done = self.act(f"{where} {tool.name}", do, tool_context)
            args.update(done.get("args", {}))
            return done.get("answer")

        def after_tool(tool, args, tool_context, tool_response):
            return self.act(f"{where} {tool.name}", do, tool_context).get("answer")

        def on_tool_error(tool, args, tool_context, error):
            return self.act(f"{where} {tool.name}", do, tool_context).get("answer")

        hooks = {
            "before_agent": of_agent,
            "after_agent": of_agent,
            "before_model": before_model,
            "after_model": after_model,
            "on_model_error": on_model_error,
            "before_tool": before_tool,
            "after_tool": after_tool,
            "on_tool_error": on_tool_error,
        }
        return hooks[kind]

    def hooks(self, owner, hooks):
        made = {}
        for kind, all_do in hooks.items():
            made[kind + "_callback"] = [
                self.hook(f"{owner}.{kind}" + (f".{number}" if number else ""), kind, do)
                for number, do in enumerate(all_do)
            ]
        return made

    def agent(self, spec):
        name = spec["name"]
        inner = [self.agent(agent) for agent in spec.get("agents", [])]
        hooks = self.hooks(name, spec.get("hooks", {}))
        of_all = {"name": name, "description": spec.get("description", ""), "sub_agents": inner, **hooks}
        kind = spec.get("kind", "llm")
        if kind == "sequential":
            return SequentialAgent(**of_all)
        if kind == "parallel":
            return ParallelAgent(**of_all)
        if kind == "loop":
            return LoopAgent(max_iterations=spec["rounds"], **of_all)
        model = Script(lines=list(spec.get("says", [])), seen=[])
        self.models[name] = model
        tools = [self.tool(tool) for tool in spec.get("tools", [])]
        tools += [AgentTool(self.agent(agent)) for agent in spec.get("agent_tools", [])]
        return LlmAgent(
            model=model,
            tools=tools,
            instruction=spec.get("instruction", ""),
            output_key=spec.get("output_key"),
            include_contents="none" if spec.get("alone") else "default",
            disallow_transfer_to_parent=spec.get("no_parent", False),
            disallow_transfer_to_peers=spec.get("no_peers", False),
            **of_all,
        )

    def plugin(self, spec):
        plugin = BasePlugin(name=spec["name"])
        for kind, do in spec["hooks"].items():
            hook = self.hook(f"{spec['name']}.{kind}", kind, do)

            async def run(hook=hook, **arguments):
                arguments.pop("agent", None)
                renamed = {"tool_args": "args", "result": "tool_response"}
                return hook(**{renamed.get(key, key): value for key, value in arguments.items()})

            setattr(plugin, kind + "_callback", run)
        return plugin

    async def run(self):
        plugins = [self.plugin(spec) for spec in self.case.get("plugins", [])]
        app = App(name="case", root_agent=self.agent(self.case["root"]), plugins=plugins)
        runner = InMemoryRunner(app=app)
        service = runner.session_service
        session = await service.create_session(
            app_name="case", user_id="user", state=self.case.get("state", {})
        )
        turns = []
        waits = []
        for turn in self.case["turns"]:
            events = []
            if isinstance(turn, str):
                part = types.Part(text=turn)
            else:
                author, call = waits[0]
                part = types.Part.from_function_response(name=call.name, response=turn["answer"])
                part.function_response.id = call.id
                if call.name != CONFIRMATION:
                    events.append([author, *piece("said", part)])
            message = types.Content(role="user", parts=[part])
            waits = []
            failed = False
            try:
                async for event in runner.run_async(
                    user_id="user", session_id=session.id, new_message=message
                ):
                    parts = event.content.parts if event.content else []
                    parts = [part for part in parts or [] if not is_pause(part)]
                    events.extend([event.author, *piece("said", part)] for part in parts)
                    waits.extend((event.author, call) for call in waiting(event))
            except BaseException as error:
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    raise
                failed = True
            turns.append({"events": events, "failed": failed, "waits": [name_of(call) for _, call in waits]})
        session = await service.get_session(app_name="case", user_id="user", session_id=session.id)
        return {
            "turns": turns,
            "requests": {name: model.seen for name, model in self.models.items()},
            "hooks": self.log,
            "state": dict(session.state),
        }


async def main():
    with open(sys.argv[1]) as file:
        cases = json.load(file)
    done = {}
    for case in cases:
        done[case["name"]] = await asyncio.wait_for(Program(case).run(), timeout=20)
    json.dump(done, sys.stdout)


asyncio.run(main())
