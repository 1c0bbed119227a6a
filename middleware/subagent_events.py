"""What whoever watches a run is told of the subagents that programs start.

Events go out on LangGraph's custom stream, as dicts; `docs/subagents.md` has their shape.
"""

from __future__ import annotations

import hashlib
import json
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
        ordinal: how many equal tasks the eval had before this one.
    """

    def __init__(
        self,
        write: Callable[[Any], None] | None,
        *,
        eval_id: str,
        tool_call_id: str,
        task: TaskInput,
        ordinal: int,
    ) -> None:
        self._write = write
        self._ids = {
            "id": _id_of(eval_id, task, ordinal),
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


def _id_of(eval_id: str, task: TaskInput, ordinal: int) -> str:
    """The same whenever the same eval starts the same task: an eval that was interrupted runs anew.

    By what the task is, not by when it started: with calls that race, that changes.
    """
    said = [
        eval_id,
        task.subagent_type,
        task.description,
        task.label,
        task.response_schema,
        ordinal,
    ]
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    return f"{eval_id}_task_{digest[:16]}"


def _flat(text: str) -> str:
    return " ".join(text.split())
