"""Which calls of a program need a person's approval, and what a decision makes of a call.

The requests and decisions have the shape of LangChain's human-in-the-loop middleware; each request
has an `id` besides.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args

from .seam import ToolCallRequest

DecisionType = Literal["approve", "edit", "reject", "respond"]
DECISIONS: Final[tuple[DecisionType, ...]] = get_args(DecisionType)
_DESCRIPTION: Final = "A program asks to call a tool"
_NO_REASON: Final = "do not repeat the call unless the user asks for it"
_KEYS: Final = frozenset({"allowed_decisions", "description", "when", "args_schema"})


@dataclasses.dataclass(frozen=True, slots=True)
class Gate:
    """How calls of one tool are approved."""

    allowed: tuple[DecisionType, ...] = DECISIONS
    description: str | Callable[..., str] = ""
    when: Callable[[ToolCallRequest], bool] | None = None

    def applies(self, request: ToolCallRequest | None) -> bool:
        """Whether that call needs approval."""
        return self.when is None or request is None or bool(self.when(request))

    def describe(self, request: ToolCallRequest | None, name: str, args: Any) -> str:
        """What the person is told of the call."""
        if callable(self.description) and request is not None:
            return self.description(request.tool_call, request.state, request.runtime)
        told = self.description if isinstance(self.description, str) else ""
        shown = json.dumps(args, default=str, ensure_ascii=False)
        return f"{told or _DESCRIPTION}\n\nTool: {name}\nArgs: {shown}"


Gates = Mapping[str, Gate]


def checked_gates(value: Any) -> dict[str, Gate]:
    """The option `ptc_interrupt_on`, as gates by tool name.

    Raises:
        TypeError, ValueError: it is no good; a gate is never left out silently.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(
            f"ptc_interrupt_on must map tool names to True or a config, not {type(value).__name__}"
        )
    gates = {}
    for name, config in value.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"ptc_interrupt_on: {name!r} is no tool's name")
        if config is True:
            gates[name] = Gate()
        elif isinstance(config, Mapping):
            gates[name] = _gate(name, config)
        elif config is not False:
            raise TypeError(f"ptc_interrupt_on[{name!r}] must be True, False or a config")
    return gates


def _gate(name: str, config: Mapping[str, Any]) -> Gate:
    where = f"ptc_interrupt_on[{name!r}]"
    if unknown := set(config) - _KEYS:
        raise ValueError(f"{where} has unknown keys: {', '.join(sorted(map(str, unknown)))}")
    allowed = config.get("allowed_decisions", DECISIONS)
    if isinstance(allowed, str) or not allowed or not set(allowed) <= set(DECISIONS):
        raise ValueError(f"{where}: allowed_decisions={allowed!r}; choose of {list(DECISIONS)}")
    description = config.get("description", "")
    if not isinstance(description, str) and not callable(description):
        raise TypeError(f"{where}: description must be text or a callable")
    when = config.get("when")
    if when is not None and not callable(when):
        raise TypeError(f"{where}: when must be a callable")
    return Gate(tuple(allowed), description, when)


class Rejected(Exception):
    """A person rejected the call. The guest may catch it: the decision stands either way."""


def check_decision(decision: Any, name: str, allowed: tuple[str, ...]) -> None:
    """Raise ValueError unless it is a decision that may be made about a call of that tool."""
    kind = decision.get("type") if isinstance(decision, Mapping) else None
    if kind not in allowed:
        raise ValueError(
            f"the decision about {name} must be one of {list(allowed)}, as {{'type': ...}}, "
            f"not {kind or decision!r}"
        )
    if kind == "edit":
        action = decision.get("edited_action")
        if not isinstance(action, Mapping) or not isinstance(action.get("args"), Mapping):
            raise ValueError(f"an edit of {name} needs edited_action={{'name', 'args'}}")
        if action.get("name", name) != name:
            raise ValueError(f"an edit cannot make {name} a call of {action['name']!r}")
    if kind == "respond" and not isinstance(decision.get("message"), str):
        raise ValueError(f"a response for {name} needs a message")


def decided_args(decision: Mapping[str, Any], args: Any) -> Any:
    """What the tool is called with: what was approved, exactly.

    Raises:
        Rejected: it is not called.
    """
    if decision["type"] == "edit":
        return dict(decision["edited_action"]["args"])
    if decision["type"] == "reject":
        reason = decision.get("message") or _NO_REASON
        raise Rejected(f"rejected by the reviewer: {reason}")
    return args
