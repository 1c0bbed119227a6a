"""A worker that says too much: the host's memory and descriptors stay, and it is stopped."""

from __future__ import annotations

import dataclasses
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from qjs_pool import Limits, Pool

from .stage import Stage, descriptors, peak_growth

_MIB: Final = 1 << 20
_LIMITS: Final = Limits(cpu=1.0, wall=2.0, value_bytes=_MIB, host_calls=None)
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


@pytest.mark.parametrize(
    ("scene", "error"),
    [
        ("logs_without_end", "WorkerCrashed"),
        ("sends_zeros_without_end", "WorkerCrashed"),
        ("sends_frames_of_the_cap_without_end", "WorkerCrashed"),
        ("says_ready_without_end", "WorkerCrashed|Timeout"),
        ("reports_deaths_without_end", "WorkerCrashed"),
        ("calls_tools_without_end", "Timeout"),
        ("calls_tools_with_large_inputs", "Timeout"),
        ("stuffs_descriptors_into_data", "WorkerCrashed"),
        ("stuffs_descriptors_into_control", "WorkerCrashed|Timeout"),
        ("stuffs_descriptors_into_the_leash", "Timeout"),
    ],
)
def test_a_flood_is_stopped_and_leaves_no_trace_in_the_host(
    play: Play, scene: str, error: str
) -> None:
    gate = threading.Event()
    before = descriptors()
    limits = dataclasses.replace(_LIMITS, wall=0.8) if error == "Timeout" else _LIMITS
    stage = play(scene, limits, tool=lambda _: 1, slow=lambda _: gate.wait(20))
    logging.getLogger("qjs_pool").setLevel(logging.ERROR)
    try:
        with peak_growth() as grown:
            result = stage.eval("1 + 1")
            assert grown() < 32 * _MIB
    finally:
        gate.set()
        logging.getLogger("qjs_pool").setLevel(logging.NOTSET)
    assert result.error is not None
    assert result.error.name in error.split("|")
    assert stage.eval("6 * 7").value == 42
    assert stage.ended() == -signal.SIGKILL
    assert stage.honest_workers == 1
    stage.core.close()
    assert descriptors() == before


def test_a_flood_does_not_hold_up_a_neighbour(honest: Pool, play: Play) -> None:
    stage = play("says_ready_without_end")
    flood = threading.Thread(target=lambda: stage.eval("1"))
    with honest.session() as neighbour:
        flood.start()
        values = [neighbour.eval(f"{number}").value for number in range(50)]
    flood.join(20)
    assert not flood.is_alive()
    assert values == list(range(50))
