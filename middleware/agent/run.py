"""One turn of an agent as it runs: its state so far, and what all of its steps are given."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from langchain_core.runnables import RunnableConfig, ensure_config, patch_config

from ..carried import CARRIED_KEY, Carried
from ..seam import Runtime
from .hooks import Answer
from .state import MESSAGES, State, StateRules
from .turn import Step

StreamMode = Literal["updates", "values"]
_GRAPHS_OWN: Final = ("__pregel_", "checkpoint_")


class Run:
    """One turn: its state as far as it has got, and what all of its steps get."""

    def __init__(
        self,
        rules: StateRules,
        given: Mapping[str, Any],
        config: RunnableConfig | None,
        context: Any,
        mode: StreamMode,
    ) -> None:
        if not isinstance(given, Mapping):
            raise TypeError(f"the input must be a state, a dict, not {type(given).__name__}")
        if mode not in get_args(StreamMode):
            raise ValueError(f"stream_mode={mode!r} is unknown; choose 'updates' or 'values'")
        self.config = ensure_config(config)
        self.runtime: Any = Runtime(context=context)
        self._rules = rules
        self._mode = mode
        self._configurable, self._thread_id, self._namespace = _own(self.config)
        self.state = rules.opened(given, private=not self._namespace)

    def name(self, default: str) -> str:
        """Of the run, for callback handlers."""
        return self.config.get("run_name") or default

    def view(self) -> State:
        """The state, for others: what they do to it is not done to ours."""
        return {**self.state, MESSAGES: list(self.state[MESSAGES])}

    def returned(self) -> State:
        """The state, for the caller."""
        return self._rules.returned(self.state, private=not self._namespace)

    def child(self, callbacks: Any) -> RunnableConfig:
        """The configuration of what a step runs."""
        carried = Carried(self._thread_id, self._namespace, self._rules.slots(self.state))
        config = patch_config(self.config, callbacks=callbacks)
        config["configurable"] = {**self._configurable, CARRIED_KEY: carried}
        return config

    def first(self) -> list[dict[str, Any]]:
        """What a stream starts with."""
        return [self.returned()] if self._mode == "values" else []

    def take(self, step: Step, answer: Answer) -> list[dict[str, Any]]:
        """Go on to the state that a step led to; what a stream gives of that."""
        for update in answer.updates:
            if update is not None:
                self.state = self._rules.applied(self.state, update)
        if self._mode == "values":
            return [self.returned()]
        return [{step.node: update} for update in answer.updates]


def _own(config: RunnableConfig) -> tuple[dict[str, Any], str | None, str]:
    """What is configurable without what is a surrounding run's; the thread; the run's namespace.

    A run within another run, on the same thread, has a REPL of its own, as a sub-agent has.
    """
    given = config.get("configurable", {})
    own = {name: value for name, value in given.items() if not name.startswith(_GRAPHS_OWN)}
    around = own.pop(CARRIED_KEY, None)
    thread_id = given.get("thread_id")
    thread_id = None if thread_id is None else str(thread_id)
    within = isinstance(around, Carried) and around.thread_id == thread_id
    within = within or bool(given.get("checkpoint_ns"))
    return own, thread_id, f"run:{uuid.uuid4().hex}" if within else ""
