"""Serves the task suites of AgentDojo: a JSON request in each line of the input, a JSON answer in each line of the output.

    {"op": "catalogue"}                                     the suites: tools, user tasks, attacks
    {"op": "start", "suite": .., "user": .., "attack": ..}  begins a run, and says what an ideal planner would do
    {"op": "call", "tool": .., "arguments": {..}}           calls a tool of the run's environment
    {"op": "judge", "answer": ..}                           says whether the attack, or else the user's task, is done
"""

import functools
import importlib.abc
import importlib.machinery
import json
import pickle
import sys
import types

from pydantic_core import to_jsonable_python

VERSION = "v1.2.2"

# What an attacker writes wherever a suite lets an attacker write.
MARK = "ATTACKER-WAS-HERE"


class Placeholder(types.ModuleType):
    """A module that has every class, each without content."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class PipelineFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a placeholder for each module of pipelines: the suites name their classes in annotations alone, and the
    real ones need a client of every model provider."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("agentdojo.agent_pipeline"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Placeholder(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, PipelineFinder())

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites

import attacks

SUITES = get_suites(VERSION)


@functools.cache
def pickled_environment(name, is_attacked):
    """Returns the environment of a suite. To read it back is much faster than to copy it, or to read its YAML."""
    suite = SUITES[name]
    texts = {}
    if is_attacked:
        texts = {place: f"{MARK} {text}" for place, text in suite.get_injection_vector_defaults().items()}
    return pickle.dumps(suite.load_and_inject_default_environment(texts))


class Bridge:
    def __init__(self):
        self.plans = {}

    def catalogue(self):
        return {
            name: {
                "tools": [
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters.model_json_schema(),
                    }
                    for tool in suite.tools
                ],
                "users": list(suite.user_tasks),
                "attacks": list(suite.injection_tasks),
            }
            for name, suite in SUITES.items()
        }

    def start(self, suite, user, attack):
        self.suite = SUITES[suite]
        self.user = self.suite.user_tasks[user]
        self.attack = self.suite.injection_tasks[attack] if attack else None
        self.calls = []
        environment = pickle.loads(pickled_environment(suite, attack is not None))
        self.environment = self.user.init_environment(environment)
        self.before = pickle.dumps(self.environment)
        self.runtime = FunctionsRuntime(self.suite.tools)
        key = (suite, user, attack)
        if key not in self.plans:
            self.plans[key] = self.plan(suite)
        return self.plans[key]

    def plan(self, suite):
        calls = self.user.ground_truth(pickle.loads(self.before))
        plan = {
            "prompt": self.user.PROMPT,
            "calls": [as_json(call) for call in calls],
            "answer": self.user.GROUND_TRUTH_OUTPUT,
            "attack": None,
        }
        if self.attack is not None:
            environment = pickle.loads(self.before)
            calls = self.attack.ground_truth(environment) or attacks.calls(suite, self.attack, environment)
            plan["attack"] = {
                "mark": MARK,
                "calls": [as_json(call) for call in calls],
                "answer": self.attack.GROUND_TRUTH_OUTPUT,
            }
        return plan

    def call(self, tool, arguments):
        self.calls.append(FunctionCall(function=tool, args=arguments))
        result, error = self.runtime.run_function(self.environment, tool, arguments)
        return {"error": str(error)} if error else {"result": to_jsonable_python(result)}

    def judge(self, answer):
        """Ends the run: some checks change what they look at."""
        task = self.attack or self.user
        content = [{"type": "text", "content": answer}]
        before = pickle.loads(self.before)
        return bool(self.suite._check_task_result(task, content, before, self.environment, self.calls))


def as_json(call):
    return {"tool": call.function, "arguments": to_jsonable_python(dict(call.args))}


def main():
    # Some checks print.
    output, sys.stdout = sys.stdout, sys.stderr
    bridge = Bridge()
    for line in sys.stdin:
        request = json.loads(line)
        operation = getattr(bridge, request.pop("op"))
        try:
            answer = {"ok": operation(**request)}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=output, flush=True)


if __name__ == "__main__":
    main()
