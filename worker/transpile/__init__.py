"""From the program a model sent to scripts for the engine: `transpile`.

What belongs here: the order of the steps. They are: `text` (fence, line breaks), `parse` (which
language), `outline` (what it declares), `repl` and `completion` (persisting globals and the
value), `typescript` and `blocks` (erasing types), `edits` (one list, applied once).
Nothing here runs guest code or knows the engine.
"""

from __future__ import annotations

from tree_sitter import Node

from .edits import Edits
from .outline import outline as outline_of
from .parse import parse
from .program import Kind, Program
from .repl import AsFunction, as_script, redeclared, split
from .text import to_bytes, without_fence
from .typescript import erase

__all__ = ["Program", "transpile"]


def transpile(source: str, *, _force_function: bool = False) -> Program:
    """Turn one program into scripts; see `Program` for how to run them.

    Args:
        source: JavaScript or TypeScript, possibly in a Markdown fence. Lone surrogates are replaced.

    Returns:
        The program. Source that is neither language comes back as it is, for the engine to say why.
    """
    sent = without_fence(source)
    text = to_bytes(sent)
    parsed = parse(text)
    if parsed is None:
        return Program((text.decode(),), False, "untouched", (), text)
    outline = outline_of(parsed.tree.root_node, parsed.source)
    edits = Edits(parsed.source)
    function: AsFunction | None = None
    if outline.clash is not None:
        redeclared(edits, outline.clash)
    elif outline.in_function or _force_function:
        function = AsFunction(edits, outline)
        function.rewrite()
    else:
        as_script(edits, outline)
    if parsed.typescript:
        erase(edits, parsed.tree.root_node, outline)
        for place in parsed.semicolons:
            edits.close(place, ";")
    kind: Kind = "typescript" if parsed.typescript else "javascript"
    declared = tuple(outline.order)
    if not edits and parsed.source == sent.encode("utf-8", "replace"):
        return Program((sent,), False, kind, declared, parsed.source)
    edited = edits.apply()
    functions: list[Node] = [] if function is None else function.functions
    scripts = split(edited.text, [edited.span(node.start_byte, node.end_byte) for node in functions])
    return Program(
        tuple([script.decode() for script in scripts]),
        function is not None,
        kind,
        declared,
        parsed.source,
        edited,
    )
