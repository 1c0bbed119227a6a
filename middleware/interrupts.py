"""Interrupts of the calls of one eval, told apart, and put to a person in one.

LangGraph counts the `interrupt()`s of a node to match answers, which says nothing where a node
makes several calls at once. So each call gets a scratchpad and a namespace of its own: its
interrupts are numbered within it, and the answer that it is run again with can be no other's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.runnables import RunnableConfig

from .approval import check_decision
from .seam import GraphInterrupt

SCRATCHPAD: Final = "__pregel_scratchpad"
RESUMING: Final = "__pregel_resuming"
_SEND: Final = "__pregel_send"
_RESUME_MAP: Final = "__pregel_resume_map"
_RESUME: Final = "__resume__"
_NAMESPACE: Final = "checkpoint_ns"


@dataclasses.dataclass(frozen=True)
class Question:
    """One thing that a person is asked. `allowed`: decisions about a call, None for an interrupt.

    `value`: the action request, or what the tool gave to `interrupt()`. `nested`: the id by which
    a graph within the tool knows it.
    """

    id: str
    tool: str
    value: Any
    allowed: tuple[str, ...] | None = None
    nested: str | None = None


@dataclasses.dataclass(frozen=True)
class Given:
    """What a call is run with: the decision about it, and the answers to its interrupts."""

    decision: Mapping[str, Any] | None = None
    answers: tuple[Any, ...] = ()
    nested: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Asked:
    """Why a call waits, and what it had been given until then."""

    questions: tuple[Question, ...]
    given: Given

    def answered(self, answers: Mapping[str, Any]) -> Given:
        """What the call is run again with."""
        given = self.given
        nested = {}
        for question in self.questions:
            answer = answers[question.id]
            if question.allowed is not None:
                given = dataclasses.replace(given, decision=answer)
            elif question.nested is not None:
                nested[question.nested] = answer
            else:
                given = dataclasses.replace(given, answers=(*given.answers, answer))
        # Only those of now: a graph within the tool has kept the earlier ones itself.
        return dataclasses.replace(given, nested=nested)


class _Counter:
    """Counts the `interrupt()`s of one call."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return self.count - 1


def call_config(config: RunnableConfig, number: int, given: Given) -> RunnableConfig:
    """The configuration of one call of an eval: its interrupts are its own."""
    conf = config.get("configurable") or {}
    scratchpad = conf.get(SCRATCHPAD)
    if scratchpad is None or not dataclasses.is_dataclass(scratchpad):
        return config
    send = conf.get(_SEND)

    def send_others(writes: Sequence[tuple[str, Any]]) -> None:
        # Which answers the eval's own interrupt has had is kept by the eval.
        if send is not None and (others := [one for one in writes if one[0] != _RESUME]):
            send(others)

    own = {
        SCRATCHPAD: dataclasses.replace(
            scratchpad,  # type: ignore[type-var]
            interrupt_counter=_Counter(),
            subgraph_counter=_Counter(),
            get_null_resume=lambda consume=False: None,
            resume=list(given.answers),
        ),
        _SEND: send_others,
        _NAMESPACE: f"{conf.get(_NAMESPACE, '')}|{number}",
        _RESUME_MAP: dict(given.nested) or None,
        # A graph within a tool goes on from its checkpoint only if it is answered.
        RESUMING: bool(given.nested),
    }
    child = config.copy()
    child["configurable"] = {**conf, **own}
    return child


def asked_by(
    interrupt: GraphInterrupt, config: RunnableConfig, call_id: str, tool: str, given: Given
) -> Asked:
    """What a call that was interrupted asks."""
    counter = config["configurable"][SCRATCHPAD].interrupt_counter
    own = isinstance(counter, _Counter) and counter.count > len(given.answers)
    interrupts = interrupt.args[0] if interrupt.args else ()
    several = len(interrupts) > 1
    questions = tuple(
        Question(
            f"{call_id}.{index}" if several else call_id,
            tool,
            one.value,
            nested=None if own else one.id,
        )
        for index, one in enumerate(interrupts, 1)
    )
    return Asked(questions, given)


def interrupt_value(questions: Sequence[Question]) -> Any:
    """The value of the one interrupt: a lone tool's own, else all questions with their ids."""
    if len(questions) == 1 and questions[0].allowed is None:
        return questions[0].value
    value: dict[str, Any] = {}
    approvals = [one for one in questions if one.allowed is not None]
    if approvals:
        value["action_requests"] = [one.value for one in approvals]
        value["review_configs"] = [
            {"action_name": one.tool, "allowed_decisions": list(one.allowed or ())}
            for one in {one.tool: one for one in approvals}.values()
        ]
    if others := [one for one in questions if one.allowed is None]:
        value["interrupts"] = [
            {"id": one.id, "name": one.tool, "value": one.value} for one in others
        ]
    return value


def answers_of(questions: Sequence[Question], value: Any) -> dict[str, Any]:
    """The answer to each question, by its id, out of the value that the run was resumed with.

    Raises:
        ValueError: it does not answer all of them, or with what may not be decided.
    """
    ids = [one.id for one in questions]
    approvals = [one for one in questions if one.allowed is not None]
    decisions = value.get("decisions") if isinstance(value, Mapping) else None
    if isinstance(value, Mapping) and set(value) == set(ids):
        answers = dict(value)
    elif len(approvals) == len(ids) and isinstance(decisions, Sequence):
        if len(decisions) != len(ids):
            raise ValueError(f"{len(decisions)} decisions for {len(ids)} calls: {', '.join(ids)}")
        answers = dict(zip(ids, decisions, strict=True))
    elif len(ids) == 1 and not approvals:
        answers = {ids[0]: value}
    else:
        how = "{'decisions': [...]} in their order, or " if len(approvals) == len(ids) else ""
        raise ValueError(f"resume with {how}a mapping of each id to its answer: {', '.join(ids)}")
    for one in approvals:
        check_decision(answers[one.id], one.tool, one.allowed or ())
    return answers
