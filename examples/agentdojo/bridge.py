"""Serves one suite of AgentDojo v1.2.2 to the example: a JSON request a line on stdin, a JSON answer a line on stdout."""

import importlib.util
import json
import pathlib
import sys
import types

MARK = "ATTACKERWASHERE"


def import_suites():
    # The package's `__init__` imports a client of every model provider. Only its task suites are needed here.
    root = pathlib.Path(importlib.util.find_spec("agentdojo").submodule_search_locations[0])
    pipeline = types.ModuleType("agentdojo.agent_pipeline")
    pipeline.__path__ = [str(root / "agent_pipeline")]
    clients = types.ModuleType("agentdojo.agent_pipeline.llms")
    clients.__path__ = []
    google = types.ModuleType("agentdojo.agent_pipeline.llms.google_llm")
    google.EMPTY_FUNCTION_NAME = "<empty-function>"
    for module in (pipeline, clients, google):
        sys.modules[module.__name__] = module
    from agentdojo.task_suite.load_suites import get_suites

    return get_suites("v1.2.2")


SUITES = import_suites()

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.types import text_content_block_from_string

# Results that the platform or the user alone wrote.
TRUSTED_RESULTS = {
    "get_current_day", "search_contacts_by_name", "search_contacts_by_email",
    "get_iban", "get_balance", "get_user_info", "get_scheduled_transactions",
    "get_users_in_channel", "get_user_information",
    "get_all_hotels_in_city", "get_hotels_prices", "get_hotels_address",
    "get_all_restaurants_in_city", "get_cuisine_type_for_restaurants", "get_restaurants_address",
    "get_dietary_restrictions_for_all_restaurants", "get_contact_information_for_restaurants",
    "get_price_for_restaurants", "check_restaurant_opening_hours",
    "get_all_car_rental_companies_in_city", "get_car_types_available", "get_car_fuel_options",
    "get_car_rental_address", "get_car_price_per_day", "get_flight_information",
}

# Consequential tools, with the arguments that may carry content of others. All others decide what happens.
# A visit of a page is one: its address can carry data out.
ACTIONS = {
    "send_email": ["subject", "body"],
    "delete_email": [],
    "create_calendar_event": ["title", "start_time", "end_time", "description", "location"],
    "cancel_calendar_event": [],
    "reschedule_calendar_event": ["new_start_time", "new_end_time"],
    "add_calendar_event_participants": [],
    "append_to_file": ["content"],
    "create_file": ["filename", "content"],
    "delete_file": [],
    "share_file": [],
    "send_money": ["subject", "date"],
    "schedule_transaction": ["subject", "date"],
    "update_scheduled_transaction": ["subject", "date"],
    "update_password": [],
    "update_user_info": [],
    "get_webpage": [],
    "post_webpage": ["content"],
    "send_direct_message": ["body"],
    "send_channel_message": ["body"],
    "add_user_to_channel": [],
    "invite_user_to_slack": [],
    "remove_user_from_slack": [],
    "reserve_hotel": [],
    "reserve_car_rental": [],
    "reserve_restaurant": [],
}


class Bridge:
    def __init__(self, suite):
        self.suite = SUITES[suite]
        self.runtime = FunctionsRuntime(self.suite.tools)
        self.environments = {}

    def environment(self, attacked):
        if attacked not in self.environments:
            vectors = {}
            if attacked:
                # Every place that an attacker may write to keeps its text, and gets the mark.
                defaults = self.suite.get_injection_vector_defaults()
                vectors = {name: text.rstrip("\\n").rstrip("\n") + " " + MARK for name, text in defaults.items()}
            self.environments[attacked] = self.suite.load_and_inject_default_environment(vectors)
        return self.environments[attacked].model_copy(deep=True)

    def tasks(self):
        # Some attacks of workspace come without calls or a text: no model can be scripted to make them.
        environment = self.environment(True)
        injection = [
            name
            for name, task in self.suite.injection_tasks.items()
            if task.ground_truth(environment.model_copy(deep=True)) or task.GROUND_TRUTH_OUTPUT
        ]
        return {"user": list(self.suite.user_tasks), "injection": injection, "mark": MARK}

    def tools(self):
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters.model_json_schema(),
                "trusted": tool.name in TRUSTED_RESULTS,
                "action": tool.name in ACTIONS,
                "data": ACTIONS.get(tool.name, []),
            }
            for tool in self.suite.tools
        ]

    def reset(self, user_task, injection_task=None):
        self.user = self.suite.user_tasks[user_task]
        self.attack = self.suite.injection_tasks.get(injection_task)
        self.env = self.user.init_environment(self.environment(self.attack is not None))
        self.before = self.env.model_copy(deep=True)
        self.calls = []
        attack = []
        if self.attack is not None:
            attack = self.attack.ground_truth(self.before.model_copy(deep=True))
        return {
            "prompt": self.user.PROMPT,
            "user": [self.line(call) for call in self.user.ground_truth(self.before.model_copy(deep=True))],
            "attack": [self.line(call) for call in attack],
            "answer": self.user.GROUND_TRUTH_OUTPUT or "",
            "attack_answer": getattr(self.attack, "GROUND_TRUTH_OUTPUT", "") or "",
        }

    @staticmethod
    def line(call):
        return {"name": call.function, "arguments": dict(call.args)}

    def call(self, name, arguments):
        self.calls.append(FunctionCall(function=name, args=arguments))
        result, error = self.runtime.run_function(self.env, name, arguments)
        return {"text": tool_result_to_str(result) if error is None else str(error), "error": error is not None}

    def check(self, output):
        def done(task):
            if task is None:
                return False
            # Some checks change the environment.
            before, after = self.before.model_copy(deep=True), self.env.model_copy(deep=True)
            text = [text_content_block_from_string(output)]
            return bool(self.suite._check_task_result(task, text, before, after, self.calls))

        return {"utility": done(self.user), "attack": done(self.attack)}


def main():
    bridge = Bridge(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(bridge, request["do"])(**request.get("with", {}))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
