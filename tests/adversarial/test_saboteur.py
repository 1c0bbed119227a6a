"""A crash matrix: a worker that fails or lies, when, how, and what comes of it.

Each case ends with proof that the session goes on, in an honest worker.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from qjs_pool import Limits, Pool
from qjs_pool import conversation as conversation_module
from qjs_pool import core as core_module
from qjs_pool.drive import drive
from qjs_pool.errors import SpawnError

from .saboteur import SCENES
from .stage import Stage, descriptors

_LIMITS: Final = Limits(cpu=5.0, wall=10.0, value_bytes=100_000, host_calls=20)
_SHORT: Final = Limits(cpu=0.2, wall=0.4, value_bytes=100_000, host_calls=20)
Play = Callable[..., Stage]


@pytest.fixture(scope="module")
def honest() -> Iterator[Pool]:
    with Pool(limits=_LIMITS) as pool:
        yield pool.start()


@pytest.fixture
def play(honest: Pool) -> Iterator[Play]:
    stages: list[Stage] = []

    def begin(scene: str, limits: Limits = _LIMITS, **tools: Any) -> Stage:
        stages.append(Stage(honest, scene, limits, tools))
        return stages[-1]

    yield begin
    for stage in stages:
        stage.close()


def _goes_on(stage: Stage) -> None:
    """The session answers, in an honest worker, and keeps its state there."""
    assert stage.eval("globalThis.n = 6; n * 7").value == 42
    assert stage.honest_workers == 1
    assert stage.eval("n").value == 6


@pytest.mark.parametrize(
    "scene",
    ["dies_before_hello", "says_garbage_on_the_leash", "says_half_a_hello",
     "says_garbage_instead_of_ready", "says_nothing_at_all", "greets_and_never_opens",
     "dies_when_asked_to_open", "opens_something_else"],
)  # fmt: skip
def test_a_worker_that_fails_before_it_serves_is_replaced_unseen(
    play: Play, scene: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What real workers on slow machines get is more than we want to wait for one that is silent.
    for module in (conversation_module, core_module):
        monkeypatch.setattr(module, "STAND_S", 1.0)
    before = descriptors()
    stage = play(scene)
    _goes_on(stage)
    stage.ended()
    stage.core.close()
    assert descriptors() == before


@pytest.mark.parametrize(
    ("scene", "error", "part"),
    [
        ("exits", "WorkerCrashed", ""),
        ("is_killed", "WorkerCrashed", ""),
        ("crashes", "WorkerCrashed", ""),
        ("stops_in_mid_frame_and_exits", "WorkerCrashed", ""),
        ("stops_in_mid_frame_and_is_silent", "Timeout", "0.4 s"),
        ("is_silent", "Timeout", "wall"),
        ("sends_garbage", "WorkerCrashed", "protocol"),
        ("sends_empty_frames", "WorkerCrashed", "protocol"),
        ("claims_a_frame_of_4_gib", "WorkerCrashed", "4294967295"),
        ("nests_a_million_deep", "WorkerCrashed", "protocol"),
        ("answers_another_eval", "WorkerCrashed", "EvalDone for"),
        ("answers_a_request_that_was_not_made", "WorkerCrashed", "Done may not come"),
        ("calls_a_tool_for_another_eval", "WorkerCrashed", "ToolCall for"),
        ("says_that_it_is_held_unasked", "WorkerCrashed", "Held may not come"),
        ("calls_a_tool_that_there_is_none_of", "WorkerCrashed", "__import__"),
        ("calls_twice_with_one_id", "WorkerCrashed", "open already"),
        ("calls_more_tools_than_allowed", "WorkerCrashed", "host_calls=20"),
        ("sends_a_message_of_the_hosts", "WorkerCrashed", "not a message"),
        ("gives_fields_of_the_wrong_type", "WorkerCrashed", "not a message"),
        ("gives_times_that_are_no_numbers", "WorkerCrashed", "not a message"),
        ("gives_a_text_over_the_cap", "WorkerCrashed", "text of 1048576 is over"),
        ("gives_an_output_over_the_cap", "WorkerCrashed", "stdout of 1048576 is over"),
        ("gives_a_value_over_the_cap", "WorkerCrashed", "over"),
        ("gives_an_error_over_the_cap", "WorkerCrashed", "error of 1048577 is over"),
        ("gives_notes_over_the_cap", "WorkerCrashed", "not a message"),
        ("loses_its_state_without_a_reason", "WorkerCrashed", "without an error"),
        ("sends_a_huge_control_datagram", "WorkerCrashed", "control message of over"),
        ("sends_garbage_on_control", "WorkerCrashed", "control socket"),
        ("reports_a_death_with_negative_numbers", "WorkerCrashed", "control socket"),
        ("reports_a_death_that_no_kernel_gives", "WorkerCrashed", "control socket"),
        ("reports_a_death_with_huge_numbers", "WorkerCrashed", "impossible wait status 127"),
    ],
)
def test_a_worker_that_fails_in_an_eval_is_found_out_and_replaced(
    play: Play, scene: str, error: str, part: str
) -> None:
    gate = threading.Event()
    limits = _SHORT if error == "Timeout" else _LIMITS
    stage = play(scene, limits, tool=lambda _: 1, slow=lambda _: gate.wait(20))
    result = stage.eval("1 + 1")
    assert result.error is not None
    assert result.error.name == error
    assert part in result.error.message
    assert result.state in ("rolled_back", "reset")
    assert result.text == ""
    assert result.value is None
    gate.set()
    _goes_on(stage)
    stage.ended()


@pytest.mark.parametrize(
    "scene",
    ["answers_twice", "claims_its_state_is_kept_and_leaves", "answers_and_is_never_ready_again"],
)
def test_a_worker_that_fails_after_its_answer_is_replaced_with_a_note(
    play: Play, scene: str
) -> None:
    stage = play(scene, _SHORT)
    assert stage.eval("1 + 1").text == "forged"  # a compromised guest may say what it likes
    if scene == "answers_and_is_never_ready_again":
        # It could be busy: what it is asked next is what finds it out.
        assert stage.eval("1 + 1").error is not None
        _goes_on(stage)
    else:
        result = stage.eval("globalThis.n = 6")
        if scene == "claims_its_state_is_kept_and_leaves" and result.error is not None:
            # It was not gone yet when this was sent to it.
            assert (result.error.name, result.state) == ("WorkerCrashed", "reset")
        else:
            assert result.value == 6
            assert any("lost" in note for note in result.notes)
        _goes_on(stage)
    stage.ended()


def test_a_stranger_who_says_ready_is_neither_believed_nor_killed(play: Play) -> None:
    stage = play("lets_a_stranger_say_ready", _SHORT)
    result = stage.eval("1 + 1")  # silence: the host looks for whom to kill
    assert result.error is not None
    assert result.error.name == "Timeout"
    assert stage.ended() == -signal.SIGKILL  # the worker that the host knew
    _goes_on(stage)


def test_the_pid_of_a_worker_is_the_kernels_word(play: Play) -> None:
    stage = play("is_silent", _SHORT)
    stage.eval("1")
    assert stage.saboteurs[0].pid != os.getpid()
    assert stage.core.worker_pid in (None, stage.saboteurs[0].pid)
    _goes_on(stage)
    drive(stage.core, stage.core.stand)
    assert stage.core.worker_pid is not None
    assert stage.core.worker_pid != stage.saboteurs[0].pid


def test_workers_that_all_fail_are_a_spawn_error_and_no_endless_loop(
    honest: Pool, play: Play
) -> None:
    stage = play("dies_when_asked_to_open")
    again = stage.core._obtain

    def always(idle: bool) -> Any:
        if stage.saboteurs:
            stage.saboteurs.pop().wait(20)
        return again(idle)

    stage.core._obtain = always
    with pytest.raises(SpawnError, match="attempts"):
        stage.eval("1")


def test_each_scene_is_played() -> None:
    here = {
        name
        for test in (
            test_a_worker_that_fails_before_it_serves_is_replaced_unseen,
            test_a_worker_that_fails_in_an_eval_is_found_out_and_replaced,
            test_a_worker_that_fails_after_its_answer_is_replaced_with_a_note,
        )
        for mark in test.pytestmark  # type: ignore[attr-defined]
        for name in (case if isinstance(case, str) else case[0] for case in mark.args[1])
    }
    floods = {name for name in SCENES if "without_end" in name or "stuffs" in name}
    rest = {"lets_a_stranger_say_ready", "calls_tools_with_large_inputs"}
    assert here | floods | rest == set(SCENES)
