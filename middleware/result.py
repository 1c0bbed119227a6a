"""An eval's outcome as the model reads it, and as the artifact that callers read."""

from __future__ import annotations

import dataclasses
from typing import Any

from qjs_pool.result import EvalResult


def render_result(
    result: EvalResult,
    *,
    max_chars: int,
    show_console: bool = True,
    failed_tool: str | None = None,
    notes: tuple[str, ...] = (),
) -> str:
    """The text of the tool's message: every part escaped, so that none can forge another.

    `failed_tool`: the uncaught error is the failure of this tool.
    """
    parts = []
    if show_console and result.stdout:
        # stdout and text were cut, with their marker, where they were made.
        parts.append(f"<stdout>\n{escape(result.stdout)}\n</stdout>")
    if result.error is not None:
        error = result.error
        message, name = error.message, error.name
        if failed_tool is not None:
            message, name = f"{failed_tool} failed: {name}: {message}", "ToolError"
        parts.append(render_error(name, message, error.stack, max_chars=max_chars))
    else:
        kind = ' kind="handle"' if result.kind == "handle" else ""
        parts.append(f"<result{kind}>{escape(result.text)}</result>")
    remarks = "; ".join((*notes, *result.notes))
    if remarks:
        parts.append(f"<note>{escape(' '.join(remarks.split()))}</note>")
    return "\n".join(parts)


def render_error(name: str, message: str, stack: str = "", *, max_chars: int) -> str:
    """One error element."""
    text = f"{message}\n{stack}" if stack else message
    return f'<error type="{_attribute(name)}">{escape(cut(text, max_chars))}</error>'


def cut(text: str, max_chars: int) -> str:
    """At most `max_chars` code points, then a marker that counts the rest."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}… [truncated {len(text) - max_chars} chars]"


def escape(text: str) -> str:
    """Text for inside an element."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _attribute(text: str) -> str:
    return escape(text).replace('"', "&quot;")


def artifact_of(result: EvalResult) -> dict[str, Any]:
    """Plain data for `ToolMessage.artifact`: the trace of calls and the figures."""
    error = result.error
    return {
        "calls": [dataclasses.asdict(call) for call in result.calls],
        "usage": dataclasses.asdict(result.usage),
        "state": result.state,
        "notes": list(result.notes),
        "error": None if error is None else {"name": error.name, "message": error.message},
    }
