"""The adapter: how calls into the engine end, and what a program's end looks like from Python."""

from __future__ import annotations

import gc
import json
from typing import Final

import msgspec
import pytest

from qjs_pool.wire import messages as wire
from qjs_pool.worker.engine import Engine, EngineOutOfMemory, Interrupted, Outcome

from .prelude_guest import Guest, engine_has

HAS_COLUMNS = "<input>:1:" in (getattr(Guest().outcome("null.x").error, "stack", ""))
MIB = 1 << 20


def run(engine: Engine, source: str, *, first: bool = True, last: bool = True) -> bool:
    return engine.run(source, first=first, last=last, boxed=False, want_value=True)


def finish(engine: Engine) -> Outcome:
    while engine.run_job():
        pass
    return engine.finish()


# --- running ------------------------------------------------------------------------------------


def test_a_value_is_there_at_once_a_promise_is_not() -> None:
    engine = Engine()
    assert run(engine, "1 + 1")
    assert engine.finish().value == b"2"
    assert not run(engine, "Promise.resolve(3)")
    assert not engine.poll(0.0).settled
    assert finish(engine).value == b"3"


def test_a_program_of_two_scripts_has_the_value_of_the_last() -> None:
    engine = Engine()
    assert not run(engine, "function f() { return 5 } 99", last=False)
    assert run(engine, "f()", first=False)
    assert engine.finish().text == "5"


def test_after_an_error_in_the_first_script_the_second_does_not_run() -> None:
    engine = Engine()
    assert run(engine, "throw new Error('first')", last=False)
    assert run(engine, "globalThis.ran = 1", first=False)
    outcome = engine.finish()
    assert outcome.error is not None
    assert outcome.error.message == "first"
    run(engine, "typeof ran")
    assert engine.finish().text == "undefined"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("[5]", "5"),
        ("[[5]]", "[5]"),
        ("(async () => [7])()", "7"),
        ("(async () => [{then(r) { r('resolved') }}])()", "{then: [Function: then]}"),
        ("[{then(r) { r('resolved') }}]", "{then: [Function: then]}"),
        ("[Promise.resolve(8)]", "8"),
        ("(async () => [Promise.resolve(9)])()", "9"),
        ("[undefined]", "undefined"),
    ],
)
def test_a_boxed_value_is_unwrapped_once_and_promises_are_waited_for(
    source: str, text: str
) -> None:
    assert Guest().outcome(source, boxed=True).text == text


def test_a_thenable_that_is_no_promise_is_a_value() -> None:
    guest = Guest()
    assert guest.text("({then(r) { r(1) }})") == "{then: [Function: then]}"
    assert guest.text("({then: 5})") == "{then: 5}"


def test_ready_jobs_have_run_before_the_result() -> None:
    guest = Guest()
    outcome = guest.outcome("Promise.resolve().then(() => console.log('job')); 0")
    assert (outcome.text, outcome.stdout) == ("0", "job")


def test_an_answer_to_a_forgotten_eval_does_not_settle_the_next() -> None:
    guest = Guest()
    guest.start("new Promise((resolve) => { globalThis.late = resolve })")
    guest.engine.abandon()
    guest.start("late('old'); new Promise(() => {})")
    assert not guest.settled


def test_abandoning_an_eval_returns_what_it_printed_and_drops_its_calls() -> None:
    guest = Guest(tools=[{"name": "t", "alias": "t"}])
    guest.engine.run(
        "console.log('so far'); tools.t(1)", first=True, last=True, boxed=False, want_value=True
    )
    assert guest.engine.stdout() == "so far"
    assert guest.engine.abandon() == "so far"
    status = guest.engine.poll(0.0)
    assert (status.calls, status.calls_open) == ((), 0)
    assert guest.text("1") == "1"


def test_calls_of_an_earlier_eval_outlive_an_abandoned_one() -> None:
    guest = Guest(tools=[{"name": "t", "alias": "t"}])
    guest.start("tools.t(1).then((v) => { globalThis.got = v }); 0")
    guest.engine.finish()
    guest.start("tools.t(2)")
    guest.engine.abandon()
    assert not guest.engine.settle(guest.calls[1].id, True, "2")
    guest.answer(0, '"kept"')
    assert guest.text("got") == "kept"


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("null.x", "TypeError", "null"),
        ("nope", "ReferenceError", "nope"),
        ("foo(", "SyntaxError", ""),
        ("throw null", "Error", "null"),
        ("throw undefined", "Error", "undefined"),
        ("throw 'plain'", "Error", "plain"),
        ("throw {code: 5}", "Error", "{code: 5}"),
        ("throw new Error('')", "Error", ""),
        ("class NotFound extends Error { constructor(m) { super(m); this.name = 'NotFound' } }"
         "; throw new NotFound('id 7')", "NotFound", "id 7"),
        ("class E2 extends Error {} ; E2.prototype.name = 'E2'; throw new E2('m')", "E2", "m"),
        ("throw Object.assign(new Error('x'), {name: 5})", "Error", "x"),
        ("throw Object.defineProperty(new Error('x'), 'message', {get() { throw 1 }})",
         "Error", ""),
        ("throw new Proxy(new Error('x'), {get() { throw new Error('again') }})", "Error", "x"),
        ("throw new AggregateError([new Error('a')], 'all')", "AggregateError", "all"),
        ("throw () => 1", "Error", "[Function (anonymous)]"),
        ("throw Symbol('s')", "Error", "Symbol(s)"),
        ("(async () => { throw new RangeError('out') })()", "RangeError", "out"),
        ("Promise.reject({status: 503})", "Error", "{status: 503}"),
        ("function f(n) { return f(n + 1) } f(0)", "RangeError", "Maximum call stack size"),
        ("throw new Error('\\ud800')", "Error", "\ufffd"),
    ],
)  # fmt: skip
def test_what_was_thrown_is_reported(source: str, name: str, message: str) -> None:
    error = Guest().error(source)
    assert error[0] == name
    assert message in error[1]
    if message == "":
        assert error[1] == "" or name == "SyntaxError"


def test_a_long_message_is_cut() -> None:
    _, message = Guest().error("throw new Error('m'.repeat(10000))")
    assert message == "m" * 4000 + "… [truncated 6000 chars]"


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "for (;;);",
        "(async () => { for (;;); })()",
        "(async () => { await null; try { for (;;); } finally { globalThis.x = 1 } })()",
        pytest.param(
            "Promise.resolve().then(() => { for (;;); }); 1",
            marks=pytest.mark.skipif(
                not HAS_COLUMNS,
                reason="the classic engine makes a rejection of it; the worker's budget sees it",
            ),
        ),
        "try { for (;;); } catch (e) { 'caught' }",
        "(function f() { return Promise.resolve().then(f) })()",
        "new Promise(() => { for (;;); })",
    ],
)
def test_a_program_out_of_time_is_interrupted_and_the_engine_goes_on(source: str) -> None:
    engine = Engine()
    engine.set_cpu(0.05)

    def to_the_end() -> None:
        run(engine, source)
        for _ in range(100_000):
            if not engine.run_job():
                engine.finish()
                return
        raise Interrupted  # jobs without end: the worker's budget ends those

    with pytest.raises(Interrupted):
        to_the_end()
    engine.set_cpu(5.0)
    assert engine.abandon() == ""
    assert run(engine, "1 + 1")
    assert engine.finish().text == "2"


def test_formatting_and_encoding_are_interruptible() -> None:
    engine = Engine()
    run(engine, "({get a() { for (;;); }})")
    engine.set_cpu(0.05)
    with pytest.raises(Interrupted):
        engine.finish()
    engine.set_cpu(5.0)
    engine.abandon()
    run(engine, "[{b: 'fine'}]")
    assert engine.finish().value == b'[{"b":"fine"}]'


@pytest.mark.parametrize(
    "source",
    [
        "const l = []; for (;;) l.push(new ArrayBuffer(1 << 16))",
        "let s = 'x'; const l = []; for (;;) { s += s.length; l.push(s + 'y') }",
        "const l = []; try { for (;;) l.push({}) } catch (e) { globalThis.kept = l; throw e }",
    ],
)
def test_a_full_heap_is_told_by_the_allocator(source: str) -> None:
    engine = Engine()
    engine.set_memory(4 * MIB)
    engine.set_cpu(20.0)
    try:
        run(engine, source)
        outcome = finish(engine)
    except EngineOutOfMemory:
        return
    error = outcome.error
    assert error is not None
    assert outcome.out_of_memory or not engine.can_allocate() or engine.memory() < 4 * MIB


def test_can_allocate_tells_a_heap_over_its_limit() -> None:
    engine = Engine()
    engine.set_memory(8 * MIB)
    run(engine, "globalThis.held = new Uint8Array(3 << 20); 1")
    engine.finish()
    assert engine.can_allocate()
    assert 2.9 * MIB < engine.memory() < 3.1 * MIB
    engine.set_memory(1 * MIB)
    assert not engine.can_allocate()
    engine.set_memory(8 * MIB)
    run(engine, "held = null; 1")
    engine.finish()
    engine.set_memory(1 * MIB)
    assert engine.can_allocate()


_OPTIONS: Final = wire.Open(
    request_id=1,
    memory_bytes=8 * MIB,
    stack_bytes=MIB,
    result_chars=4000,
    console_chars=4000,
    value_bytes=MIB,
    value_nodes=10_000,
    durable=False,
    clock="off",
    seed="00",
    tools=[],
    modules={},
)


def test_options_without_a_seed_let_random_numbers_go_on() -> None:
    tools = [wire.Tool("search", "search")]
    draws = []
    for between in (None, msgspec.structs.replace(_OPTIONS, tools=tools, seed="")):
        engine = Engine()
        engine.configure(_OPTIONS)
        run(engine, "Math.random()")
        first = finish(engine).text
        if between is not None:
            engine.configure(between)
        run(engine, "Math.random()")
        draws.append((first, finish(engine).text))
    assert draws[0] == draws[1]
    assert draws[0][0] != draws[0][1]


def test_throwing_null_is_not_out_of_memory() -> None:
    engine = Engine()
    engine.configure(_OPTIONS)
    engine.set_memory(8 * MIB)
    run(engine, "throw null")
    assert not engine.finish().out_of_memory


def test_deep_recursion_is_a_range_error_and_the_console_is_kept() -> None:
    guest = Guest()
    outcome = guest.outcome("console.log('in'); function d(n) { return d(n + 1) + 1 } d(0)")
    assert outcome.error is not None
    assert outcome.error.name == "RangeError"
    assert outcome.stdout == "in"
    assert guest.text("1") == "1"


# --- the base image -----------------------------------------------------------------------------


def test_preload_adds_frozen_globals_that_are_not_listed() -> None:
    engine = Engine()
    engine.preload(
        [
            "globalThis.sum = (a) => a.reduce((x, y) => x + y, 0);",
            "var table = {rows: [1, {deep: true}], f() { return this.rows.length }};"
            "class Box { constructor() { this.v = 1 } } globalThis.Box = Box; globalThis.m = Math",
        ]
    )
    guest = Guest()
    guest.engine = engine
    assert guest.text("sum([1, 2])") == "3"
    assert guest.text("Object.keys(globalThis)") == "[]"
    assert guest.error("'use strict'; table.rows[1].deep = false")[0] == "TypeError"
    assert guest.text("table.f = 1; [table.f(), Object.isFrozen(table.rows)]") == "[2, true]"
    assert guest.text("[new Box().v, Object.isFrozen(Box.prototype), Object.isFrozen(Math)]") == (
        "[1, true, false]"
    )
    assert guest.text("var sum = 5; sum") == "5"


def test_preload_that_fails_says_why() -> None:
    for source, words in (
        ("null.x", "TypeError"),
        ("new Promise(() => {})", "wait"),
        ("for (;;);", "longer"),
    ):
        with pytest.raises(ValueError, match=words):
            Engine().preload([source], cpu_s=0.1)


def test_memory_of_the_prelude_and_the_preload_is_not_the_guests() -> None:
    engine = Engine()
    engine.preload(["globalThis.big = new Uint8Array(2 << 20)"])
    assert engine.memory() < 100_000
    engine.set_memory(1 * MIB)
    assert run(engine, "new Uint8Array(500000).length")
    assert engine.finish().text == "500000"


def test_evals_do_not_leak() -> None:
    guest = Guest()
    source = "console.log({a: 1}); [{a: 1, b: [1, 2]}, new Map([[1, 2]]), new Error('x')]"
    for _ in range(20):
        guest.outcome(source)
    guest.engine.can_allocate()
    before = guest.engine.memory()
    for _ in range(300):
        guest.outcome(source)
    guest.engine.can_allocate()
    gc.collect()
    assert guest.engine.memory() - before < 20_000


def test_strings_of_every_kind_cross_both_ways() -> None:
    guest = Guest()
    text = 'a\0b é \u2028 \U0001f600 " \\ \x01 \ufffd'
    assert guest.engine.set_global("s", json.dumps(text, ensure_ascii=False))
    outcome = guest.outcome("s")
    assert outcome.text == text
    assert outcome.value is not None
    assert json.loads(outcome.value) == text
    if engine_has("'\0'.length === 1"):  # the classic engine's parser stops at a NUL
        assert guest.text("'a\0b'.length") == "3"
    assert guest.text("'" + "long é " * 5000 + "'.length") == "35000"
