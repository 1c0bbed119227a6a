"""From the program a model sent to scripts for the engine: `transpile`.

What belongs here: the order of the steps. They are: `text` (fence, line breaks), `parse` (which
language, or `refused`), `outline` (what it declares), `repl` and `completion` (persisting globals
and the value), `typescript` and `blocks` (erasing types), `proof` (what a snapshot may restore
from source), `edits` (one list, applied once).
Nothing here runs guest code or knows the engine.
"""

from __future__ import annotations

from tree_sitter import Node

from .edits import Edits
from .imports import rewrite_dynamic_imports
from .outline import outline as outline_of
from .parse import Failed, parse
from .parser import NoRoom
from .program import Kind, Program
from .proof import Sites, open_declarations, register_expressions
from .queries import SyntaxQuery
from .refused import refuse
from .repl import RESERVED, AsFunction, apart, as_script, redeclared, split
from .text import to_bytes, without_fence
from .typescript import erase

__all__ = ["RESERVED", "NoRoom", "Program", "compile_queries", "transpile"]

compile_queries = SyntaxQuery.compile_all


def transpile(
    source: str,
    ticket: int = 0,
    *,
    reserved: frozenset[str] = RESERVED,
    _force_function: bool = False,
) -> Program:
    """Turn one program into scripts; see `Program` for how to run them.

    Args:
        source: JavaScript or TypeScript, possibly fenced. Lone surrogates are replaced.
        ticket: with which functions at global scope are handed to the prelude (see `proof`).
        reserved: globals that the engine lets no function declaration replace.

    Returns:
        The program. What is neither language is left for the engine to refuse: kind "untouched".

    Raises:
        NoRoom, MemoryError: there is not the memory to read it. Both leave nothing behind.
    """
    sent = without_fence(source)
    text = to_bytes(sent)
    parsed = parse(text)
    edits = Edits(parsed.source)
    if isinstance(parsed, Failed):
        refuse(edits, parsed)
        if not edits:
            return Program((sent,), False, "untouched", (), text)
        edited = edits.apply()
        return Program((edited.text.decode(),), False, "untouched", (), parsed.source, edited)
    outline = outline_of(parsed.tree.root_node, parsed.source)
    for place in parsed.semicolons:
        edits.close(place, ";")
    # Only in a function are declared functions apart from the rest, as `apart` needs them.
    shadowed = reserved & outline.functions.keys()
    outline.returns = outline.returns or _force_function or bool(shadowed)
    outline.typescript = parsed.typescript
    sites = Sites(ticket)
    proves = ticket != 0 and outline.clash is None
    if proves:
        open_declarations(edits, outline, sites)
    function: AsFunction | None = None
    if outline.clash is not None:
        redeclared(edits, outline.clash)
    elif outline.in_function:
        function = AsFunction(edits, outline)
        function.rewrite()
    else:
        as_script(edits, outline)
    rewrite_dynamic_imports(edits, parsed.tree.root_node)
    if parsed.typescript:
        erase(edits, parsed.tree.root_node, outline)
    if proves:
        register_expressions(edits, outline, sites)
    kind: Kind = "typescript" if parsed.typescript else "javascript"
    declared = tuple(outline.order)
    if not edits and parsed.source == sent.encode("utf-8", "replace"):
        return Program((sent,), False, kind, declared, parsed.source)
    edited = edits.apply()
    functions: list[Node] = [] if function is None else function.functions
    spans = [edited.span(node.start_byte, node.end_byte) for node in functions]
    scripts = split(edited.text, spans)
    if shadowed and function is not None:
        scripts = apart(edited, function.functions, shadowed)
    return Program(
        tuple([script.decode() for script in scripts]),
        function is not None,
        kind,
        declared,
        parsed.source,
        edited,
        sites.to_json(edited) if sites.found else "",
    )
