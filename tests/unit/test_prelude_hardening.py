"""No guest program may break, spoof or observe the bridge, formatter, encoder or console."""

from __future__ import annotations

import pytest

from .prelude_guest import Guest

# Everything a guest can reach, broken: each function replaced by one that records and throws, each
# accessor likewise, and traps on the names that engines and careless code look up.
BREAK_EVERYTHING = """
(() => {
  globalThis.hits = '';
  const { ownKeys, getOwnPropertyDescriptor, defineProperty, getPrototypeOf } = Reflect;
  const String_ = String;
  const seen = new Set();
  const record = (name) => function () { globalThis.hits += name + ' '; throw 'broken ' + name };
  const roots = [];
  const visit = (object, path, depth) => {
    if ((typeof object !== 'object' && typeof object !== 'function') || object === null) return;
    if (seen.has(object) || depth > 4) return;
    seen.add(object);
    roots.push([object, path]);
    for (const key of ownKeys(object)) {
      const d = getOwnPropertyDescriptor(object, key);
      if ('value' in d) visit(d.value, path + '.' + String_(key), depth + 1);
      else { visit(d.get, path, depth + 1); visit(d.set, path, depth + 1) }
    }
    visit(getPrototypeOf(object), path + '^', depth + 1);
  };
  visit(globalThis, '', 0);
  for (const sample of [[][Symbol.iterator](), new Map().entries(), new Set().values(),
    ''[Symbol.iterator](), (function* () {})(), (async function* () {})(), async () => {},
    Promise.resolve(), Object(1n), Object(Symbol()), /x/[Symbol.matchAll]('')]) {
    visit(sample, '?', 0);
  }
  const skip = new Set(['hits', 'keep', 'globalThis', 'undefined', 'NaN', 'Infinity']);
  const doomed = [];
  for (const [object, path] of roots) {
    for (const key of ownKeys(object)) {
      if (skip.has(key) || key === 'prototype') continue;
      const d = getOwnPropertyDescriptor(object, key);
      const isText = key === 'name' || key === 'message';
      if ('value' in d && typeof d.value !== 'function' && !isText) continue;
      doomed.push([object, key, path + '.' + String_(key), d]);
    }
  }
  const nullish = (o) => { o.__proto__ = null; return o };
  const breakers = doomed.map(([object, key, name, d]) => {
    const broken = record(name);
    return [object, key, 'value' in d && typeof d.value === 'function'
      ? { __proto__: null, value: broken } : { __proto__: null, get: broken, set: broken }];
  });
  const names = ['get', 'set', 'value', 'writable', 'enumerable', 'configurable', 'then', 'toJSON',
    'done', 'next', 'length', 'index', 'seed', 'clock', 'tools', 'alias', 'required', 'description',
    '0', '1', '2', '3', '$', 'message', 'stack', 'name', 'cause', 'errors', 'raw', 'apply',
    'construct', 'ownKeys', 'has', 'deleteProperty', 'defineProperty', 'getOwnPropertyDescriptor',
    'getPrototypeOf'];
  const symbols = [Symbol.iterator, Symbol.toPrimitive, Symbol.toStringTag, Symbol.species,
    Symbol.hasInstance, Symbol.isConcatSpreadable, Symbol.match, Symbol.replace, Symbol.split,
    Symbol.unscopables, Symbol.asyncIterator];
  for (const p of [Object.prototype, Array.prototype, Function.prototype, String.prototype,
    Number.prototype, Error.prototype, Promise.prototype, RegExp.prototype, Map.prototype]) {
    for (const key of [...names, ...symbols]) {
      const broken = record('trap ' + String_(key));
      breakers.push([p, key, { __proto__: null, get: broken, set: broken, configurable: true }]);
    }
  }
  const count = breakers.length;
  for (let i = 0; i < count; i++) {
    const b = breakers[i];
    try { defineProperty(b[0], b[1], b[2]) } catch (e) {}
  }
  hits = '';
})(); 0
"""


def broken_guest(source: str = BREAK_EVERYTHING) -> Guest:
    guest = Guest(tools=[{"name": "search", "alias": "web_search", "required": ["q"]}])
    outcome = guest.outcome(source)
    assert outcome.error is None, outcome.error
    return guest


def assert_unobserved(guest: Guest) -> None:
    assert guest.text("hits") == ""


@pytest.fixture
def guest() -> Guest:
    return broken_guest()


def test_the_vandal_program_really_breaks_what_the_tests_rely_on(guest: Guest) -> None:
    """The control: without it the tests below would prove nothing."""
    for source in (
        "[1].push(2)", "[...[1]]", "JSON.stringify({})", "({}).anything = {}.then", "`${{}}`",
        "new Map().get(1)", "Promise.resolve(1)", "Object.keys({})", "const [a] = [1]",
        "''.slice()",
    ):  # fmt: skip
        assert guest.outcome(source).error is not None, source
    assert len(guest.text("hits")) > 50


VALUES = [
    ("[{a: [1, 2]}]", "[{a: [1, 2]}]", '[{"a":[1,2]}]'),
    ("({a: 'x', b: {c: null, 'd-e': true}})", '{a: "x", b: {c: null, "d-e": true}}',
     '{"a":"x","b":{"c":null,"d-e":true}}'),
    ("[1, 2, 3, 4, 5, 6, {i: 1, s: 'v'}, {i: 2, s: 'w'}]",
     '[1, 2, 3, 4, 5, 6, {i: 1, s: "v"}, {i: 2, s: "w"}]',
     '[1,2,3,4,5,6,{"i":1,"s":"v"},{"i":2,"s":"w"}]'),
    ("['a', 'b', 'c', 'd', 'e', 'f', '\\ud800']", '["a", "b", "c", "d", "e", "f", "\ufffd"]',
     '["a","b","c","d","e","f","\ufffd"]'),
    ("[1n, -0, 1.5, 1e21]", "[1n, -0, 1.5, 1e+21]",
     '[{"$":["int","1"]},{"$":["num","-0"]},1.5,1e+21]'),
    ("/a+/g", "/a+/g", '"/a+/g"'),
    ("({get a() { return 1 }})", "{a: [Getter]}", '{"a":1}'),
    ("function named() {}", "[Function: named]", '"[Function: named]"'),
    ("'x'", "x", '"x"'),
    ("undefined", "undefined", "null"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "text", "encoded"), VALUES)
def test_values_are_shown_and_encoded_as_ever(
    guest: Guest, source: str, text: str, encoded: str
) -> None:
    outcome = guest.outcome(f"({source})")
    assert outcome.error is None
    assert outcome.text == text
    assert outcome.value is not None
    assert outcome.value.decode() == encoded
    assert_unobserved(guest)


def test_collections_made_before_are_shown_and_encoded_as_ever() -> None:
    guest = broken_guest(
        "{ const kept = [new Map([[1, {a: 2}]]), new Set(['x']), new Date(0), "
        "new Uint8Array([1, 2]), new Error('e'), [1, 3], new Number(5), "
        "Object.create(null), new (class K { constructor() { this.y = 1 } })()]; "
        "globalThis.keep = () => kept }" + BREAK_EVERYTHING
    )
    outcome = guest.outcome("keep()")
    shown = (
        '[Map(1) {1 => {a: 2}}, Set(1) {"x"}, 1970-01-01T00:00:00.000Z, Uint8Array(2) [1, 2], '
        "Error: e, [1, 3], [Number: 5], [Object: null prototype] {}, K {y: 1}]"
    )
    assert outcome.text == shown
    assert outcome.value is not None
    encoded = outcome.value.decode()
    assert encoded.startswith(
        '[{"$":["map",[[1,{"a":2}]]]},["x"],{"$":["date",0]},{"$":["bytes","AQI="]},{"$":["error",'
    )
    assert encoded.endswith(',[1,3],5,{},{"y":1}]')


def test_the_console_prints_as_ever(guest: Guest) -> None:
    source = (
        "console.log('a', 1, {b: [2]}); console.error('%s is %d', 'x', 5); console.table([{k: 1}])"
    )
    stdout = guest.outcome(source).stdout
    assert stdout.startswith("a 1 {b: [2]}\nx is 5\n┌─")
    assert "│ 0       │ 1 │" in stdout
    assert_unobserved(guest)


def test_promises_are_waited_for_as_ever(guest: Guest) -> None:
    assert guest.text("(async () => 7)()") == "7"
    assert guest.error("(async () => { throw null })()") == ("Error", "null")
    assert_unobserved(guest)


def test_errors_are_reported_as_ever(guest: Guest) -> None:
    assert guest.error("throw {code: 5}") == ("Error", "{code: 5}")
    assert guest.error("throw 'plain'") == ("Error", "plain")
    assert guest.error("nope")[1] in ("nope is not defined", "'nope' is not defined")
    assert guest.error("foo(")[0] == "SyntaxError" or guest.error("foo(")[0] == "Error"
    assert_unobserved(guest)


def test_tools_are_called_as_ever(guest: Guest) -> None:
    guest.start("tools.search({q: ['a', {b: 1}]})")
    assert [(call.name, call.args) for call in guest.calls] == [("search", '{"q":["a",{"b":1}]}')]
    # Not an object: resolving a promise with one looks up its `then`, that much is the language.
    guest.answer(0, '{"$":["int","5"]}')
    assert guest.engine.finish().text == "5n"
    assert_unobserved(guest)


def test_globals_from_the_host_arrive_as_ever(guest: Guest) -> None:
    assert guest.engine.set_global("given", '{"a":[1,{"$":["map",[]]}]}')
    assert guest.text("given.a[0]") == "1"
    assert_unobserved(guest)


@pytest.mark.parametrize("name", ["console", "tools", "task"])
@pytest.mark.parametrize(
    "attack",
    [
        "{0} = 5",
        "globalThis.{0} = null",
        "delete globalThis.{0}",
        "Object.defineProperty(globalThis, '{0}', {{value: 1, configurable: false}})",
        "Object.defineProperty(globalThis, '{0}', {{get() {{ throw 1 }}}})",
        "var {0} = 1",
        "Object.freeze(globalThis)",
        "Object.setPrototypeOf({0}, null)",
        "for (const k of Object.keys({0})) {0}[k] = null",
        "for (const k of Object.keys({0})) delete {0}[k]",
        "for (const k of Object.keys({0})) {0}[k] = null; Object.freeze({0})",
    ],
)
def test_what_is_ours_is_back_in_the_next_eval(name: str, attack: str) -> None:
    search = {"name": "search", "alias": "search"}
    guest = Guest(tools=[search, {"name": "task", "alias": "task", "isGlobal": True}])
    guest.outcome(attack.format(name))
    assert guest.outcome("console.log('back')").stdout == "back"
    assert guest.text("[typeof tools.search, Object.keys(tools)]") == '["function", ["search"]]'
    assert guest.text("[typeof task, task === tools.task]") == '["function", true]'


def test_a_guest_may_replace_a_console_method_for_the_rest_of_its_eval() -> None:
    guest = Guest()
    source = "const out = []; console.log = (x) => out.push(x); console.log('mine'); out"
    outcome = guest.outcome(source)
    assert (outcome.text, outcome.stdout) == ('["mine"]', "")
    assert guest.stdout("console.log('ours')") == "ours"


def test_what_a_guest_must_not_have_is_gone() -> None:
    guest = Guest()
    names = (
        "performance SharedArrayBuffer print gc std os bjson navigator scriptArgs Worker require "
        "process fetch __loadScript __date_clock bridge primordials bridgeTable"
    )
    present = f"'{names}'.split(' ').filter((name) => name in globalThis)"
    assert guest.text(present) == "[]"
    assert guest.text("[typeof Atomics.wait, typeof Atomics.waitAsync]") == (
        '["undefined", "undefined"]'
    )
    assert guest.text("Object.keys(globalThis)") == "[]"


def test_a_proxy_behaves_as_the_native_one() -> None:
    guest = Guest()
    source = """[
      typeof Proxy, Proxy.length, Proxy.name, 'prototype' in Proxy,
      new Proxy({}, {get: (t, k) => k}).hello, typeof new Proxy(() => 1, {}),
      new Proxy(() => 1, {})(),
      (() => { try { Proxy({}, {}) } catch (e) { return e instanceof TypeError } })(),
      (() => { try { new Proxy(1, {}) } catch (e) { return e instanceof TypeError } })(),
      (() => { const r = Proxy.revocable({}, {}); r.revoke();
               try { r.proxy.x } catch (e) { return e instanceof TypeError } })(),
      Array.isArray(new Proxy([], {})), Reflect.construct(Proxy, [{a: 1}, {}]).a,
    ]"""
    assert guest.text(source) == (
        '["function", 2, "Proxy", false, "hello", "function", 1, true, true, true, true, 1]'
    )


def test_an_internal_error_of_the_guest_is_a_guest_error() -> None:
    guest = Guest()
    for source in (
        "throw new InternalError('out of memory')",
        "throw InternalError('out of memory')",
        "throw new (class X extends InternalError {})('out of memory')",
    ):
        outcome = guest.outcome(source)
        assert outcome.error is not None
        assert outcome.error.message == "out of memory"
        assert not outcome.out_of_memory
    assert not guest.outcome("throw null").out_of_memory
    assert (
        guest.text(
            "[new InternalError('m') instanceof InternalError, InternalError() instanceof Error, "
            "InternalError.name, InternalError.length, `${new InternalError('m')}`]"
        )
        == '[true, true, "InternalError", 1, "InternalError: m"]'
    )


def test_the_text_of_an_interrupt_runs_no_guest_code() -> None:
    from qjs_pool.worker.engine import Interrupted

    guest = Guest()
    guest.outcome(
        "hit = 0; const trap = () => { hit++; for (;;); };"
        "for (const p of [Error.prototype, Object.prototype, InternalError.prototype])"
        "  for (const k of ['toString', 'valueOf', 'stack', 'name', 'message', Symbol.toPrimitive])"
        "    try { Object.defineProperty(p, k, {__proto__: null, get: trap}) } catch (e) {}"
        "try { Error.prepareStackTrace = trap } catch (e) {}; 0"
    )
    guest.engine.set_cpu(0.05)
    with pytest.raises(Interrupted):
        guest.engine.run("for (;;);", first=True, last=True, boxed=False, want_value=False)
    guest.engine.set_cpu(20.0)
    guest.engine.abandon()
    assert guest.text("hit") == "0"


def test_a_promise_with_a_hostile_constructor_or_species_cannot_break_the_eval() -> None:
    guest = Guest()
    for source, text in (
        ("const p = Promise.resolve(1); p.constructor = null; p", None),
        (
            "const p = Promise.resolve(2); p.constructor = {[Symbol.species]: function () {}}; p",
            None,
        ),
        ("const p = Promise.resolve(3); p.then = () => { throw 1 }; p", "3"),
        ("const p = Promise.resolve(4); Object.freeze(p)", "4"),
        ("class Mine extends Promise {} ; Mine.resolve(5)", "5"),
        ("Promise.prototype.then = null; Promise.resolve(6)", "6"),
        ("Object.create(Promise.prototype)", "Promise {<pending>}"),
    ):
        outcome = guest.outcome(source)
        assert outcome.error is None, source
        if text is not None:
            assert outcome.text == text
