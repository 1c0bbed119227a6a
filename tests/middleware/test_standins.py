"""Our stand-ins for LangChain's types, where the loop's suite does not look."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from langchain_core.messages import SystemMessage

from qjs_pool.middleware import standins


def tool_request(state: Any) -> standins.ToolCallRequest:
    runtime: standins.ToolRuntime[Any, Any] = standins.ToolRuntime(
        state=state, context=None, config={}, stream_writer=print, tool_call_id="1", store=None
    )
    return standins.ToolCallRequest(
        tool_call={"name": "t", "args": {}, "id": "1"}, tool=None, state=state, runtime=runtime
    )


def test_requests_cannot_be_changed_in_place() -> None:
    model: standins.ModelRequest[Any] = standins.ModelRequest(model=None, messages=[])
    for request, field in ((model, "messages"), (tool_request({}), "state")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(request, field, [])


def test_a_system_prompt_is_short_for_a_system_message() -> None:
    request: standins.ModelRequest[Any] = standins.ModelRequest(model=None, messages=[])
    assert request.system_prompt is None
    changed = request.override(system_prompt="be brief")
    assert changed.system_message == SystemMessage("be brief")
    assert changed.system_prompt == "be brief"
    assert changed.override(system_prompt=None).system_message is None
    with pytest.raises(ValueError, match="not both"):
        request.override(system_prompt="a", system_message=SystemMessage("b"))
    with pytest.raises(TypeError, match="temperature"):
        request.override(temperature=1)


def test_another_state_in_a_tool_request_is_what_the_tool_gets_too() -> None:
    before = tool_request({"n": 1})
    after = before.override(state={"n": 2})
    assert (after.state, after.runtime.state) == ({"n": 2}, {"n": 2})
    assert (before.state, before.runtime.state) == ({"n": 1}, {"n": 1})


def test_there_is_no_config_outside_of_a_run() -> None:
    with pytest.raises(RuntimeError, match="outside"):
        standins.get_config()


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ("text", "text"),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}]),
        (["a", "é"], '["a", "é"]'),
        ([{"type": "row", "n": 1}], '[{"type": "row", "n": 1}]'),
        ({"n": {1}}, "{'n': {1}}"),
    ],
)
def test_output_is_content_where_models_know_it_and_else_text(output: Any, content: Any) -> None:
    assert standins.msg_content_output(output) == content
    tool_node = pytest.importorskip("langgraph.prebuilt.tool_node")
    assert tool_node.msg_content_output(output) == content
