"""A walk through a JSONata state machine with pretended tasks, without waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jsonata  # type: ignore[import-untyped]

Json = Any
Task = Callable[[Json], Json]  # arguments → result; raises TaskError


class TaskError(Exception):
    """A task failed, as Step Functions reports it."""

    def __init__(self, error: str, cause: str) -> None:
        super().__init__(f"{error}: {cause}")
        self.error, self.cause = error, cause


class Walk:
    """One execution.

    Args:
        definition: The machine in Amazon States Language.
        tasks: State name → what stands for its task.
    """

    def __init__(self, definition: Mapping[str, Json], tasks: Mapping[str, Task]) -> None:
        self._states, self._start = definition["States"], definition["StartAt"]
        self._tasks, self._variables = tasks, dict[str, Json]()
        self.visited: list[str] = []

    def run(self, event: Json) -> Json:
        """Return the output of the state that ends the execution."""
        name, value = self._start, event
        while True:
            self.visited.append(name)
            assert len(self.visited) < 100, self.visited
            state = self._states[name]
            name, value = getattr(self, f"_{state['Type'].lower()}")(name, state, value)
            if not name:
                return value

    def _task(self, name: str, state: Json, value: Json) -> tuple[str, Json]:
        try:
            result = self._tasks[name](self._fill(state["Arguments"], {"input": value}))
        except TaskError as exc:
            if "Catch" not in state:
                raise
            (catch,) = state["Catch"]
            assert catch["ErrorEquals"] == ["States.ALL"]
            output = {"Error": exc.error, "Cause": exc.cause}
            self._assign(catch, {"input": value, "errorOutput": output})
            return catch["Next"], output
        states = {"input": value, "result": result}
        output = self._fill(state["Output"], states) if "Output" in state else result
        self._assign(state, states)
        return state.get("Next", ""), output

    def _choice(self, _name: str, state: Json, value: Json) -> tuple[str, Json]:
        for choice in state["Choices"]:
            if self._fill(choice["Condition"], {"input": value}) is True:
                return choice["Next"], value
        return state["Default"], value

    def _pass(self, _name: str, state: Json, value: Json) -> tuple[str, Json]:
        return state["Next"], self._fill(state["Output"], {"input": value})

    def _wait(self, _name: str, state: Json, value: Json) -> tuple[str, Json]:
        return state["Next"], value

    def _assign(self, where: Json, states: Json) -> None:
        self._variables |= self._fill(where.get("Assign", {}), states)

    def _fill(self, template: Json, states: Json) -> Json:
        if isinstance(template, dict):
            return {key: self._fill(item, states) for key, item in template.items()}
        if isinstance(template, str) and template.startswith("{%"):
            expression = jsonata.Jsonata(template[2:-2])
            for name, value in {**self._variables, "states": states}.items():
                expression.assign(name, value)
            return expression.evaluate(None)
        return template
