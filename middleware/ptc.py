"""Which tools the guest gets: the `ptc` allowlist applied to the tools of one model call."""

from __future__ import annotations

import fnmatch
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from langchain_core.tools import BaseTool

from qjs_pool.errors import UsageError
from qjs_pool.tools import Tool, Toolbox, check_names, guest_name

from .dispatch import RelayedTool
from .options import Options, is_pattern
from .prompts import tools_section
from .signatures import required_fields, signature_of, summary_of
from .subagent_prompt import subagents_section
from .subagents import TASK, SubagentTool, find_task_tool, is_task_tool, subagents_of

_log: Final = logging.getLogger("qjs_pool.middleware")
_KEPT_SETS: Final = 64
_KEPT_TOOLS: Final = 2048
_DOC_CHARS: Final = 4000  # of a description, when a program asks for it


class Allowlist:
    """Names, globs (`"read_*"`), exclusions (`"!execute"`, they win) and tools, as given."""

    def __init__(self, entries: Sequence[str | BaseTool], own_name: str) -> None:
        self._own_name = own_name
        self._given = [entry for entry in entries if isinstance(entry, BaseTool)]
        texts = [entry for entry in entries if isinstance(entry, str)]
        self._names = [text for text in texts if not is_pattern(text)]
        self._globs = [text for text in texts if is_pattern(text) and not text.startswith("!")]
        self._excluded = [text[1:] for text in texts if text.startswith("!")]
        self._warned: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._given or self._names or self._globs)

    def allows(self, name: str) -> bool:
        """Whether a tool of that name would be exposed."""
        if name == self._own_name or _matches(name, self._excluded):
            return False
        return (
            name in self._names
            or any(tool.name == name for tool in self._given)
            or _matches(name, self._globs)
        )

    def names(self, name: str) -> bool:
        """Whether a tool is allowed by its name, or as itself; not by a glob."""
        return name in self._names or any(tool.name == name for tool in self._given)

    def excludes(self, name: str) -> bool:
        """Whether a tool is excluded, whatever else allows it."""
        return _matches(name, self._excluded)

    def check_gated(self, names: Iterable[str], tools: Iterable[BaseTool] | None = None) -> None:
        """See that every tool whose calls need approval is one that programs can call.

        A misspelt name would let calls through unseen. `tools`: those that are exposed; a name
        that is none of theirs is warned of, as another model call may have it.

        Raises:
            ValueError: the allowlist exposes no tool of that name.
        """
        exposed = None if tools is None else {tool.name for tool in tools}
        for name in names:
            if exposed is None and not self.allows(name):
                raise ValueError(f"ptc_interrupt_on names {name!r}, which ptc does not expose")
            if exposed is not None and name not in exposed:
                about = f"gate {name}"
                self._warn(about, "ptc_interrupt_on names %r, which is no tool here", name)

    def select(self, available: Iterable[Any], reserved: Collection[str] = ()) -> list[BaseTool]:
        """The tools to expose, by their JavaScript names, so that a prompt stays cacheable.

        `reserved`: names that the pool's worker functions have taken.
        """
        tools = {tool.name: tool for tool in self._given}
        for tool in available:
            if isinstance(tool, BaseTool):  # a provider's own tool is a dict, and not callable
                tools.setdefault(tool.name, tool)
        for entry in (*self._names, *self._globs):
            if not any(_matches(name, [entry]) for name in tools if name != self._own_name):
                self._warn(entry, "ptc entry %r matches no tool of this agent", entry)
        chosen: dict[str, BaseTool] = {guest_name(name): None for name in reserved}  # type: ignore[misc]
        for name, tool in tools.items():
            if not self.allows(name):
                continue
            try:
                check_names([name])
            except UsageError as error:
                self._warn(name, "ptc: %s; it is not exposed", error)
                continue
            other = chosen.setdefault(guest_name(name), tool)
            if other is not tool:
                self._warn(
                    name, "ptc: tool %r is not exposed: tools.%s is taken", name, guest_name(name)
                )
        return [chosen[name] for name in sorted(chosen) if chosen[name] is not None]

    def _warn(self, about: str, message: str, *details: object) -> None:
        if about not in self._warned:
            self._warned.add(about)
            _log.warning(message, *details)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class ExposedTool:
    """A tool as the guest sees it, rendered once.

    `section`: of the prompt, instead of a place in the list of tools. `more`: of `qjs_pool.Tool`.
    """

    def __init__(self, tool: BaseTool, relayed: RelayedTool | None = None, **more: Any) -> None:
        relayed = RelayedTool(tool) if relayed is None else relayed
        self.tool = tool
        self.section = ""
        self.signature = signature_of(tool)
        about = {
            "required": required_fields(tool),
            "description": signature_of(tool, max_doc_chars=_DOC_CHARS),
            **more,
        }
        self.in_threads = Tool(call=relayed.call, **about)
        self.in_loop = Tool(call=relayed.acall, **about)


class Offer:
    """What one middleware offers to programs, of the tools that an agent has.

    The tool that starts subagents is the global `task`, allowed or not, unless it is excluded, or
    subagents are turned off: then it is a tool like any other, for who names it.
    """

    def __init__(self, options: Options, allowlist: Allowlist, reserved: Collection[str]) -> None:
        self._allowlist = allowlist
        self._reserved = reserved
        self._concurrency = options.max_subagent_concurrency
        self._task_is_global = (
            options.subagents
            and not allowlist.excludes(TASK)
            and TASK not in map(guest_name, reserved)
        )
        self._gated = options.ptc_interrupt_on
        allowlist.check_gated(
            name for name in self._gated if not (name == TASK and self._task_is_global)
        )

    def allows(self, name: str) -> bool:
        """Whether programs get a tool of that name, where the agent has it."""
        return (name == TASK and self._task_is_global) or self._allowlist.allows(name)

    def tools(self, available: Iterable[Any]) -> list[BaseTool]:
        """The tools to expose, those that are globals last."""
        chosen = self._chosen(list(available))
        self._allowlist.check_gated(self._gated, chosen)
        return chosen

    def _chosen(self, available: list[Any]) -> list[BaseTool]:
        chosen = self._allowlist.select(available, self._reserved)
        task = find_task_tool([*chosen, *available])
        if task is None or not (self._task_is_global or task in chosen):
            return chosen
        # One spelling is one tool, and this one has a meaning of its own.
        others = [tool for tool in chosen if guest_name(tool.name) != TASK]
        wanted = self._task_is_global or self._allowlist.names(TASK)
        return [*others, task] if wanted else others

    def expose(self, tool: BaseTool) -> ExposedTool:
        """Render one of them."""
        more: dict[str, Any] = {"holds": tool.name in self._gated}
        if not is_task_tool(tool):
            return ExposedTool(tool, **more)
        known = subagents_of(tool)
        relayed = SubagentTool(tool, known)
        more["concurrency"] = self._concurrency
        if not self._task_is_global:
            return ExposedTool(tool, relayed, **more)
        section = subagents_section(known, self._concurrency)
        exposed = ExposedTool(tool, relayed, is_global=True, description=section, **more)
        exposed.section = section
        return exposed


class Exposed:
    """A set of tools as the guest sees them: toolboxes for both kinds of driver, and the prompt."""

    def __init__(self, tools: Sequence[ExposedTool]) -> None:
        self.tools = tuple(one for one in tools if not one.section)
        self.prompt = tools_section(
            {one.tool.name: one.signature for one in self.tools},
            {one.tool.name: summary_of(one.tool) for one in self.tools},
        )
        self.sections = tuple(one.section for one in tools if one.section)
        self.in_threads = Toolbox.of({one.tool.name: one.in_threads for one in tools})
        self.in_loop = Toolbox.of({one.tool.name: one.in_loop for one in tools})


class ExposedSets:
    """`Exposed` by the identity of its tools: a tool, and a set, is rendered once."""

    def __init__(self, expose: Callable[[BaseTool], ExposedTool]) -> None:
        self._expose = expose
        self._lock = threading.Lock()
        self._tools: OrderedDict[int, ExposedTool] = OrderedDict()
        self._sets: OrderedDict[tuple[int, ...], Exposed] = OrderedDict()

    def of(self, tools: Sequence[BaseTool]) -> Exposed:
        """The set of those tools. What is kept holds its tools, so that no id is another's."""
        key = tuple(map(id, tools))
        with self._lock:
            known = self._sets.get(key)
            if known is not None:
                self._sets.move_to_end(key)
                return known
        exposed = Exposed([self._tool(tool) for tool in tools])
        with self._lock:
            self._sets[key] = exposed
            while len(self._sets) > _KEPT_SETS:
                self._sets.popitem(last=False)
        return exposed

    def _tool(self, tool: BaseTool) -> ExposedTool:
        with self._lock:
            known = self._tools.get(id(tool))
        if known is not None:
            return known
        exposed = self._expose(tool)
        with self._lock:
            self._tools[id(tool)] = exposed
            while len(self._tools) > _KEPT_TOOLS:
                self._tools.popitem(last=False)
        return exposed
