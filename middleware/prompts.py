"""What the model is told: about the tool, the REPL and its limits, and the tools inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from qjs_pool.tools import guest_name
from qjs_pool.wire import messages as wire

from .options import Clock, Mode, Options

# More tools than that are listed only; their signatures are asked for.
MAX_SIGNATURES: Final = 50

CODE_DOC: Final = (
    "The program: JavaScript or TypeScript. The value of its last expression is the result; "
    "top-level await and return work."
)

_PERSISTENCE: Final[Mapping[Mode, str]] = {
    "thread": "Top-level variables, functions and classes stay for later calls, in later turns "
    "of this conversation as well. They may be declared again.",
    "turn": "Top-level variables, functions and classes stay for later calls of the same turn. "
    "The user's next message starts with an empty REPL.",
    "call": "Every call starts with an empty REPL: nothing stays from one call to the next. "
    "Calls made in parallel run in parallel.",
}
_CLOCKS: Final[Mapping[Clock, str]] = {
    "off": "There is no clock: `Date.now()` is always 0.",
    "frozen": "The clock stands still during a call, at the time when it started.",
    "real": "`Date` has the real time, in UTC.",
}


def tool_description(mode: Mode) -> str:
    """The description of the tool itself."""
    return (
        "Run a JavaScript or TypeScript program in a sandboxed REPL and get its result and "
        f"console output. {_PERSISTENCE[mode]}"
    )


def repl_section(options: Options) -> str:
    """The part of the system prompt that is about the REPL."""
    limits = [f"{_size(options.memory_limit)} of memory"]
    if options.timeout is not None:
        limits.append(f"{options.timeout:g} s of CPU time per call (waiting for tools is free)")
    if options.wall_timeout is not None:
        limits.append(f"{options.wall_timeout:g} s in all per call")
    console = (
        "`console.log` and its kin come back in `<stdout>`"
        if options.capture_console
        else "Console output is not shown"
    )
    return "\n".join(
        [
            f"## JavaScript REPL: the `{options.tool_name}` tool",
            "",
            f"`{options.tool_name}` runs JavaScript or TypeScript (types are erased, not checked) "
            "in a sandboxed QuickJS engine. Use it to compute, to transform data, and to do in one "
            "program what would take many steps.",
            "",
            "- The value of the last expression comes back in `<result>`, as a console shows it; "
            "a promise is awaited. Top-level `await` and `return` work.",
            f"- {console}; an uncaught error comes back in `<error>` with its line, and what was "
            "done before it stays done.",
            f"- {_PERSISTENCE[options.mode]}",
            "- No files, no network, no processes, no packages, no `Intl`. "
            + _CLOCKS[options.clock],
            f"- Limits: {', '.join(limits)}. A result or the console output is cut at "
            f"{options.max_result_chars} characters: return what you need, not everything.",
        ]
    )


def calls_section(options: Options, concurrency: int) -> str:
    """How tools are called from the REPL."""
    budget = (
        "" if options.max_ptc_calls is None else f" At most {options.max_ptc_calls} calls per eval."
    )
    return "\n".join(
        [
            "### Tools inside the REPL",
            "",
            f"Programs call tools as `await tools.name(input)`. Make independent calls together, "
            f"with `Promise.all`: up to {concurrency} run at once.{budget} A call that fails "
            "rejects with the tool's message; `try`/`catch` and `Promise.allSettled` work. "
            "Results stay in the program: only what it returns or prints reaches you.",
        ]
    )


def tools_section(signatures: Mapping[str, str], summaries: Mapping[str, str]) -> str:
    """The tools by name: with their signatures, or an index when there are many."""
    if not signatures:
        return ""
    if len(signatures) <= MAX_SIGNATURES:
        return "```ts\n" + "\n\n".join(signatures.values()) + "\n```"
    lines = [f"- tools.{guest_name(name)}: {summary}" for name, summary in summaries.items()]
    return "\n".join(
        [
            "`tools.$describe(name)` returns the signature and description of a tool: ask for it "
            "before you call one for the first time.",
            "",
            *lines,
        ]
    )


def functions_section(functions: Sequence[wire.Tool]) -> str:
    """The pool's worker functions, which are called like tools."""
    lines = [
        f"/** {' '.join(function.description.split())[:300]} */\n"
        f"tools.{function.name}(input): Promise<unknown>"
        for function in functions
    ]
    return "```ts\n" + "\n\n".join(lines) + "\n```"


def skills_section(names: Sequence[str]) -> str:
    """How the code of skills is imported."""
    listed = ", ".join(f"`@/skills/{name}`" for name in names)
    return "\n".join(
        [
            "### Skills inside the REPL",
            "",
            "A skill that has code can be imported: "
            '`const { thing } = await import("@/skills/<name>")`. '
            f"There may be code in: {listed}.",
        ]
    )


def _size(size_bytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {name}"
    return f"{size_bytes} bytes"
