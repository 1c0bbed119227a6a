"""What whoever watches a run is told of the subagents that programs start.

Events go out on LangGraph's custom stream, as dicts; `docs/subagents.md` has their shape.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, Literal

from .task_input import TaskInput

_log: Final = logging.getLogger("qjs_pool.middleware")

TYPE: Final = "subagent"
_MAX_DESCRIPTION: Final = 200
_MAX_LABEL: Final = 120
_MAX_OWN_LABEL: Final = 60  # made of the description
_MAX_ERROR: Final = 1000

Phase = Literal["start", "complete", "error"]


class Progress:
    """The events of one subagent. None is ever an error of the run.

    Args:
        write: the stream's writer, if there is one.
        eval_id: the id of the eval tool's call.
        number: of the call within the eval, as the program makes them: the same when it runs again.
    """

    def __init__(
        self,
        write: Callable[[Any], None] | None,
        *,
        eval_id: str,
        tool_call_id: str,
        task: TaskInput,
        number: int,
    ) -> None:
        self._write = write
        self._ids = {
            "id": f"{eval_id}_task_{number}",
            "eval_id": eval_id,
            "tool_call_id": tool_call_id,
        }
        self._task = task
        self._started = time.monotonic()

    def start(self) -> None:
        """It begins to run: its turn has come."""
        self._started = time.monotonic()
        task = self._task
        label = _flat(task.label or "")[:_MAX_LABEL]
        self._tell(
            "start",
            subagent_type=task.subagent_type,
            label=label or _flat(task.description)[:_MAX_OWN_LABEL],
            description=task.description[:_MAX_DESCRIPTION],
        )

    def complete(self) -> None:
        """It has answered."""
        self._tell("complete", duration_ms=self._ms())

    def error(self, error: BaseException) -> None:
        """It has failed, or was cancelled."""
        try:
            text = str(error) or type(error).__name__
        except Exception:  # an exception with a broken __str__
            text = type(error).__name__
        self._tell("error", duration_ms=self._ms(), error=text[:_MAX_ERROR])

    def _ms(self) -> int:
        return round((time.monotonic() - self._started) * 1000)

    def _tell(self, phase: Phase, **more: Any) -> None:
        if self._write is None:
            return
        try:
            self._write({"type": TYPE, "phase": phase, **self._ids, **more})
        except Exception:  # nobody listens any more, or whoever does has failed
            _log.debug("the %s of a subagent could not be told", phase, exc_info=True)


def _flat(text: str) -> str:
    return " ".join(text.split())
