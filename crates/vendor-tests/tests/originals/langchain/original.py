"""Runs programs on LangChain: python original.py CASES

Each program is an agent with middleware whose model says what the case file tells it. Printed is,
for each program by its name, what happened, in a form that the same program in Rust has as well.
"""

import asyncio
import json
import logging
import os
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
os.environ["LANGSMITH_TRACING"] = "false"

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    HumanInTheLoopMiddleware,
    LLMToolEmulator,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
    hook_config,
)
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

try:
    from langchain.agents.middleware import ToolErrorMiddleware
except ImportError:
    from langchain.agents.middleware.tool_error import ToolErrorMiddleware


class Down(Exception):
    pass


class State(AgentState):
    note: str


class Numbers:
    """Gives calls their ids, in the order in which they are made."""

    def __init__(self):
        self.next = 0

    def calls(self, calls):
        made = []
        for name, arguments in calls:
            made.append({"name": name, "args": arguments, "id": f"c{self.next}"})
            self.next += 1
        return made


class Scripted(BaseChatModel):
    # Not `list`, which pydantic would copy: the script is shared by all that are bound to tools.
    says: object
    seen: object
    numbers: object
    tools: list = []

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **_):
        names = [tool.name if hasattr(tool, "name") else tool["function"]["name"] for tool in tools]
        return Scripted(says=self.says, seen=self.seen, numbers=self.numbers, tools=names)

    def _generate(self, messages, stop=None, run_manager=None, **_):
        system = [message.text for message in messages if message.type == "system"]
        others = [shown(message) for message in messages if message.type != "system"]
        self.seen.append({"system": "\n\n".join(system), "messages": others, "tools": sorted(self.tools)})
        if not self.says:
            raise Down("the script is over")
        return ChatResult(generations=[ChatGeneration(message=answer(self.says.pop(0), self.numbers))])


def answer(turn, numbers):
    if isinstance(turn, str):
        return AIMessage(turn)
    if "error" in turn:
        raise Down(turn["error"])
    return AIMessage(turn.get("text", ""), tool_calls=numbers.calls(turn["calls"]))


def shown(message):
    """Returns a message in the common form."""
    if isinstance(message, ToolMessage):
        text = "error" if message.status == "error" else message.text
        return ["tool", message.tool_call_id, text]
    role = "user" if isinstance(message, HumanMessage) else "assistant"
    calls = [[call["id"], call["name"], call["args"]] for call in getattr(message, "tool_calls", [])]
    return [role, message.text, calls] if calls else [role, message.text]


def tools_of(names, log):
    async def add(a: int, b: int):
        log.append("add")
        return str(a + b)

    async def echo(text: str):
        log.append("echo")
        return text

    async def fail(text: str):
        log.append("fail")
        raise Down(text)

    known = {"add": add, "echo": echo, "fail": fail}
    return [StructuredTool.from_function(coroutine=known[name], name=name, description=name) for name in names]


def node(name, hook, script, log, numbers):
    jumps = sorted({do["jump"] for do in script if do and "jump" in do})

    async def run(self, state, runtime):
        log.append(f"{name}.{hook}")
        do = script.pop(0) if script else None
        if do is None:
            return None
        if "raise" in do:
            raise Down(do["raise"])
        update = {}
        if "see" in do:
            log.append(f"{name} sees {state.get(do['see'])}")
        if "set" in do:
            update.update(do["set"])
        if "jump" in do:
            update["jump_to"] = do["jump"]
        if "calls" in do:
            update["messages"] = [AIMessage("", tool_calls=numbers.calls(do["calls"]))]
        if "say" in do:
            of = HumanMessage if do.get("jump") == "model" else AIMessage
            update["messages"] = [of(do["say"])]
        if "replace" in do:
            last = state["messages"][-1]
            update["messages"] = [AIMessage(do["replace"], id=last.id, tool_calls=last.tool_calls)]
        if "remove" in do:
            update["messages"] = [RemoveMessage(state["messages"][do["remove"]].id)]
        return update or None

    return hook_config(can_jump_to=jumps)(run)


def wrap_model(name, script, log, numbers):
    async def run(self, request, handler):
        log.append(f"{name}.wrap_model>")
        do = (script.pop(0) if script else None) or {}
        try:
            if "raise" in do:
                raise Down(do["raise"])
            if "answer" in do:
                return AIMessage(do["answer"])
            if "calls" in do:
                return AIMessage("", tool_calls=numbers.calls(do["calls"]))
            if "system" in do:
                request = request.override(system_message=SystemMessage(do["system"]))
            if "no_tools" in do:
                request = request.override(tools=[])
            if "twice" in do:
                await handler(request)
            for _ in range(do.get("retry", 0)):
                try:
                    return await handler(request)
                except Down:
                    pass
            try:
                response = await handler(request)
            except Down:
                if "catch" not in do:
                    raise
                return AIMessage(do["catch"])
            if "replace" in do:
                return AIMessage(do["replace"])
            return response
        finally:
            log.append(f"{name}.wrap_model<")

    return run


def wrap_tool(name, script, log):
    async def run(self, request, handler):
        log.append(f"{name}.wrap_tool>")
        do = (script.pop(0) if script else None) or {}
        id = request.tool_call["id"]
        try:
            if "raise" in do:
                raise Down(do["raise"])
            if "answer" in do:
                return ToolMessage(do["answer"], tool_call_id=id)
            if "args" in do:
                request = request.override(tool_call={**request.tool_call, "args": do["args"]})
            for _ in range(do.get("retry", 0)):
                try:
                    return await handler(request)
                except Down:
                    pass
            try:
                response = await handler(request)
            except Down:
                if "catch" not in do:
                    raise
                return ToolMessage(do["catch"], tool_call_id=id, status="error")
            if "replace" in do:
                return ToolMessage(do["replace"], tool_call_id=id)
            return response
        finally:
            log.append(f"{name}.wrap_tool<")

    return run


def middleware_of(spec, log, numbers, seen):
    if "ready" in spec:
        return ready(spec, numbers, seen)
    hooks = {"name": spec["name"], "state_schema": State}
    for hook, script in spec["hooks"].items():
        if hook == "wrap_model":
            hooks["awrap_model_call"] = wrap_model(spec["name"], script, log, numbers)
        elif hook == "wrap_tool":
            hooks["awrap_tool_call"] = wrap_tool(spec["name"], script, log)
        else:
            hooks[f"a{hook}"] = node(spec["name"], hook, script, log, numbers)
    return type(spec["name"], (AgentMiddleware,), hooks)()


def ready(spec, numbers, seen):
    def model():
        return Scripted(says=spec["says"], seen=seen, numbers=numbers)

    at_once = {"initial_delay": 0.0, "backoff_factor": 0.0, "jitter": False}
    match spec["ready"]:
        case "model_call_limit":
            return ModelCallLimitMiddleware(run_limit=spec["limit"], exit_behavior=spec["exit"])
        case "tool_call_limit":
            return ToolCallLimitMiddleware(
                tool_name=spec.get("tool"), run_limit=spec["limit"], exit_behavior=spec["exit"]
            )
        case "model_retry":
            return ModelRetryMiddleware(max_retries=spec["retries"], on_failure=spec["failure"], **at_once)
        case "tool_retry":
            return ToolRetryMiddleware(max_retries=spec["retries"], on_failure=spec["failure"], **at_once)
        case "tool_error":
            return ToolErrorMiddleware(lambda error, request: f"told {error}")
        case "fallback":
            return ModelFallbackMiddleware(model())
        case "pii":
            return PIIMiddleware(
                spec["kind"],
                strategy=spec["strategy"],
                apply_to_input="input" in spec["places"],
                apply_to_output="output" in spec["places"],
                apply_to_tool_results="results" in spec["places"],
            )
        case "todo":
            return TodoListMiddleware(system_prompt="")
        case "approval":
            return HumanInTheLoopMiddleware(interrupt_on={tool: True for tool in spec["tools"]})
        case "emulate":
            return LLMToolEmulator(tools=spec["tools"], model=model())
    raise ValueError(spec["ready"])


def decision_of(decision):
    if "edit" in decision:
        name, arguments = decision["edit"]
        return {"type": "edit", "edited_action": {"name": name, "args": arguments}}
    if "reject" in decision:
        return {"type": "reject", "message": decision["reject"]}
    if "respond" in decision:
        return {"type": "respond", "message": decision["respond"]}
    return {"type": "approve"}


async def run(case):
    log, seen, numbers = [], [], Numbers()
    agent = create_agent(
        Scripted(says=case["says"], seen=seen, numbers=numbers),
        tools=tools_of(case.get("tools", []), log),
        system_prompt=case.get("system"),
        middleware=[middleware_of(spec, log, numbers, seen) for spec in case.get("middleware", [])],
        state_schema=State,
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "1"}}
    failed = []
    inputs = [{"messages": [HumanMessage(text)]} for text in case["turns"]]
    if "decisions" in case:
        inputs.append(Command(resume={"decisions": [decision_of(one) for one in case["decisions"]]}))
    for input in inputs:
        if os.environ.get("SHOW"):
            print(case["name"], file=sys.stderr, flush=True)
        try:
            await agent.ainvoke(input, config)
            failed.append(False)
        except Exception as error:
            failed.append(True)
            if os.environ.get("SHOW"):
                print(case["name"], repr(error), file=sys.stderr)
    values = (await agent.aget_state(config)).values
    state = {key: values[key] for key in ["note", "todos"] if key in values}
    messages = [shown(message) for message in values["messages"]]
    return {"failed": failed, "log": log, "messages": messages, "requests": seen, "state": state}


with open(sys.argv[1]) as file:
    cases = json.load(file)


async def main():
    return {case["name"]: await asyncio.wait_for(run(case), 20) for case in cases}


print(json.dumps(asyncio.run(main())))
