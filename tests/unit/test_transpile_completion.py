"""Completion values: inside a function a program's value must be what the engine's eval gives.

The engine is the judge: every program runs natively as a script, and once more as the function
that a top-level await would have made of it.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjs_pool.worker.transpile import Program

from .transpile_cases import Repl, run

STATEMENTS = r"""
1
1;2
5; var q = 3
var q = 3; 5; var r
if (true) 1; else 2
if (false) 1
1; if (false) { 2 }
1; {}
1; { 2 }
1;;
1; function f() {}
1; class K {}
for (let i = 0; i < 3; i++) i * 10
for (var i = 0; i < 3; i++) i * 10;
1; for (; false;);
var i = 0; while (i < 3) i++
1; do { 2; continue } while (false)
1; do { break } while (0)
do { 2; if (true) { break; } } while (0)
1; do 3; while (0) 4
do if (0) 1; while (0)
switch (1) { case 1: 5; break; case 2: 6 }
1; switch (9) { case 1: 5 }
switch (2) { case 1: 5; default: 6; case 3: 7 }
switch (1) { case 1: let s = 4; s }
switch (1) { case 1: 3; if (0) 4 }
try { 1 } catch (e) { 2 } finally { 3 }
try { throw 1 } catch (e) { e + 1 }
1; try {} finally { 5 }
1; try { 2 } finally {}
1; try { throw 0 } catch { 3 }
do { try { 1 } finally { 3; break } } while (0)
do { try { 1 } finally { break } } while (0)
try { 1 } finally { try { 2 } finally { 3 } }
lab: { 1; break lab }
5; lab: {}
lab: for (;;) { 7; break lab }
5; a: for (const x of [1, 2]) { if (x == 1) continue a; x }
x: while (1) { while (1) { 9; break x } }
label: 5
if (1) lab: for (;;) { 3; break }
for (const x of [1, 2]) if (x == 2) x
for (const x of [1, 2]) if (x == 1) x
for (const x of [1, 2]) { if (x == 1) x }
for (const x of [1, 2]) lab: if (x == 1) x
for (const x of [1, 2]) switch (x) { case 1: x }
for (const x of [1, 2]) try { if (x == 1) x } finally {}
for (const x of [1, 2]) { try { x; continue } finally { 9 } }
for (const x of [1, 2]) { try { x } finally { 9; continue } }
for (const a of [1]) for (const b of [2, 3]) if (b == 2) b
for (const k in { a: 1, b: 2 }) k
for (var v of [1, 2, 3]) v; v
for (var [p, q] of [[1, 2], [3, 4]]) p + q; q
for (var { length } of ["a", "bb"]); length
for (var w in { a: 1 }); w
for (var w = 5 in {}); w
for (var async of [7]); async
for (var u;;) { break }
for (var { m } = { m: 1 }, n = 2; m < n; m++) m
for (var i = 0, n = 2; i < n; i++) { var last = i } [last, i, n]
var { a, b: [c] } = { a: 1, b: [2] }; [a, c]
var { a = 1, ...b } = { c: 2 }, d; [a, b, d]
let x = 1, y; [x, typeof y]
var a = 1, b, c = 3; [a, b, c]
const f = () => 1; f.name
var fn = function () {}, g = class {}; [fn.name, g.name]
var { x = function () {} } = {}; x.name
var v = function named() {}; v.name
(() => 1)
(function () {})
(class {})
((0, () => 1))
async () => 1
'use strict'; 3
'abc'
'abc'\n4
'a'; 'b'; var x
/* a */ 'use strict' /* b */\nthis === undefined
var s = 'x'\n;[1, 2].map((v) => v)
let z = 1\nz\n++z\nz
var x = 1\nvar y\n[y]
if (1)\nvar x\n(5)
var a = 1\n/2/1\na
var n = 1; n++\nn
with ({ p: 3 }) p
1; with ({ p: 3 }) {}
with ({ p: 3 }) { var p = 4 }; typeof p
thrown = 1; thrown
if (1) ; else 2
if (true) var t = 3; t
if (true) var t; else 3
while (true) { if (1) { 4; break } }
var o = {}; o.x = 1, o.y = 2
typeof undefinedThing
void 0
null
delete globalThis.nothing
`t${1}`
({ a: 1 })
[1, , 2].length
function h() { return 1 }\n(h)
class A { static x() { return 1 } } A.x()
class A {}\n[A.name]
const { d = 5 } = {}; d
debugger; 5
var k = 1; { let k = 2; k }
for (let i of [1]) { function inner() { return i } inner() }
var fs = []; for (let i = 0; i < 2; i++) fs.push(() => i); fs.map((f) => f())
var e = 1; try { throw 2 } catch (e) { var e = 3 } e
0 /* c */ // d
// only
{ var n = 1; { var m = 2 } } n + m
let $c = 4; let $f = 5; $c + $f
export const x = 1; x
5\nexport { x }; var x
export default 7
export default () => 1
export function ef() {}; ef.name
export class EK {}; EK.name
new Promise(() => {}) instanceof Promise
throw_ = 3\nthrow_
do x = 5; while (0) x
var a = 1, b = 2, c = 3; a\n++b\nc
""".strip().split("\n")
STATEMENTS = ["", *(statement.replace("\\n", "\n") for statement in STATEMENTS)]


@pytest.mark.parametrize("source", STATEMENTS)
def test_a_function_gives_the_value_that_eval_gives(source: str) -> None:
    native, function = Repl(), Repl()
    assert function.text(source, force_function=True) == native.text(source)
    assert function.program is not None
    assert function.program.boxed
    for name in function.program.declared:
        typed = f"typeof {name}"
        assert function.text(typed) == native.text(typed)


@pytest.mark.parametrize("source", [source for source in STATEMENTS if "export" not in source])
def test_a_script_gives_the_value_that_the_source_itself_gives(source: str) -> None:
    assert Repl().outcome(source) == Repl().run(Program((source,)))


def test_a_catch_block_without_a_value_gives_undefined() -> None:
    # ECMAScript says so; the engine's own eval keeps the value of the try block, by mistake.
    assert run("await 0; 1; try { 2; throw 3 } catch {}") == "undefined"


def test_throwing_keeps_what_was_done_before() -> None:
    repl = Repl()
    assert repl.error("var k = await 1; k = 2\nthrow new RangeError('stop')\nk") == (
        "RangeError: stop"
    )
    assert repl.text("k") == "2"


_counter = st.integers(0, 99)


def _block(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(lambda parts: "{ " + " ".join(parts) + " }")


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    block, number = _block(inner), _counter
    return st.one_of(
        block,
        st.builds("if ({}) {}".format, st.booleans().map(str).map(str.lower), block),
        st.builds("if (n()) {} else {}".format, inner, inner),
        st.builds("for (const x of [1, 2, 3]) {}".format, inner),
        st.builds("for (var v{} of [1, 2]) {}".format, number, block),
        st.builds("for (var j{0} = 0; j{0} < 2; j{0}++) if (n()) {1}".format, number, inner),
        st.builds("do {} while (n());".format, block),
        st.builds(
            "switch (n()) {{ case 0: {} case 1: {} break; default: {} }}".format,
            inner,
            inner,
            inner,
        ),
        st.builds("try {{ {} }} catch (e) {{ {}; }} finally {}".format, inner, number, block),
        st.builds("for (const y of [1, 2]) {{ {} if (n()) continue; {} }}".format, inner, inner),
        st.builds(
            "do {{ try {{ {} }} finally {{ {} if (n()) break; }} }} while (0);".format, inner, inner
        ),
        st.builds("l{0}: {{ {1} if (n()) break l{0}; {2} }}".format, number, inner, inner),
    )


_simple = st.one_of(
    _counter.map("{};".format),
    _counter.map("t + {}\n".format),
    _counter.map("var w{};".format),
    _counter.map("var u{0} = {0}\n".format),
    st.builds("var [g{0} = {1}, ...r{0}] = [], h{0};".format, _counter, _counter),
    _counter.map("t += {};".format),
    st.just(";"),
    st.just("!t;"),
)
_statement = st.recursive(_simple, _compound, max_leaves=12)


@settings(max_examples=200, deadline=None)
@given(st.lists(_statement, max_size=6))
def test_any_statements_in_a_function_give_the_value_that_eval_gives(parts: list[str]) -> None:
    # Labels are numbered, and a label may not be nested in one of the same name.
    # n() says 0, 1 or 2, and no more than 60 times other than 0, so that every loop ends.
    source = "var t = 0, c = 0; const n = () => ++c > 60 ? 0 : c % 3; " + " ".join(parts)
    native, function = Repl(), Repl()
    expected = native.outcome(source)
    if "error" in expected:
        assert str(expected["error"]).startswith("SyntaxError")
        return
    assert function.text(source, force_function=True) == expected["text"]
    assert function.text("[t, c]") == native.text("[t, c]")
