"""Stack traces for the guest's eyes: the prelude's frames left out, positions in its own source.

The engine names every script `<input>`, so the prelude is loaded from line `PRELUDE_LINE_BASE` on,
modules from `MODULE_LINE_BASE` on, each behind the one before, and told by their line numbers. The
classic engine leaves out the line number of a function that is on one line, so below an
`eval (native)` frame all that has no position counts as the prelude's.
"""

import re
from collections.abc import Callable
from typing import Final

# Far below any program: a source of this many lines loses frames from its traces, nothing else.
PRELUDE_LINE_BASE: Final = 100_000
MODULE_LINE_BASE: Final = 130_000

_POSITION: Final = re.compile(r"<input>(?::(\d+)(?::(\d+))?)?")
_EVAL_FRAME: Final = "at eval (native)"
# How the prelude runs a module: a generator's method, uncurried.
_STEP_FRAMES: Final = ("at next (native)", "at call (native)")


Locate = Callable[[int, int], tuple[int, int]]
InModule = Callable[[int, int], tuple[str, int, int] | None]


def clean_stack(stack: str, locate: Locate, in_module: InModule = lambda line, column: None) -> str:
    """The engine's stack text for a guest: `eval:LINE:COL` through `locate`, ours left out.

    What `in_module` knows is `MODULE:LINE:COL`; one without a name is left out. The text may hold
    several stacks, each after a line that is no frame (`[cause]: ...`).
    """
    shown: list[str] = []
    frames: list[str] = []
    for line in stack.split("\n"):
        if line.lstrip().startswith("at "):
            frames.append(line)
            continue
        shown += _clean_frames(frames, locate, in_module)
        frames = []
        if line:
            shown.append(line)
    shown += _clean_frames(frames, locate, in_module)
    return "\n".join(shown)


def _clean_frames(frames: list[str], locate: Locate, in_module: InModule) -> list[str]:
    frames = frames[: _end_of_guest_frames(frames)]
    shown: list[str] = []
    for frame in frames:
        if _is_prelude_frame(frame):
            while shown and shown[-1].endswith(_STEP_FRAMES):
                shown.pop()
        else:
            located = _located(frame, locate, in_module)
            if located:
                shown.append(located)
    return shown


def _end_of_guest_frames(frames: list[str]) -> int:
    """Index of the prelude's own call to eval at the bottom, if that is what it is."""
    for index in range(len(frames) - 1, -1, -1):
        if frames[index].strip() == _EVAL_FRAME:
            below = frames[index + 1 :]
            if all(_is_prelude_frame(frame) or _has_no_line(frame) for frame in below):
                return index
            break
    return len(frames)


def _is_prelude_frame(frame: str) -> bool:
    match = _POSITION.search(frame)
    return (
        match is not None
        and match[1] is not None
        and PRELUDE_LINE_BASE < int(match[1]) <= MODULE_LINE_BASE
    )


def _has_no_line(frame: str) -> bool:
    match = _POSITION.search(frame)
    return match is None or match[1] is None


def _located(frame: str, locate: Locate, in_module: InModule) -> str:
    """The frame with its position in the source, "" if it is not to be shown."""
    match = _POSITION.search(frame)
    if match is None:
        return frame
    place = "eval"
    if match[1] is not None:
        line, column = int(match[1]), int(match[2] or 1)
        name, line, column = in_module(line, column) or ("eval", *locate(line, column))
        if not name:
            return ""
        place = f"{name}:{line}:{column}" if match[2] else f"{name}:{line}"
    return frame[: match.start()] + place + frame[match.end() :]
