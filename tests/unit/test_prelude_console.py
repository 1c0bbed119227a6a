"""console: what it prints, how much, and that it never throws."""

from __future__ import annotations

import pytest

from .prelude_guest import Guest


@pytest.fixture(scope="module")
def guest() -> Guest:
    return Guest()


LINES = [
    ("console.log('a', 1, {b: 2}); console.warn('w'); console.info('i')", "a 1 {b: 2}\nw\ni"),
    ("console.debug('d'); console.error(new TypeError('t'))", "d\nTypeError: t"),
    ("console.log()", ""),
    ("console.log('x'); console.log(); console.log('y')", "x\n\ny"),
    ("console.log(''); console.log('')", "\n"),
    ("console.log('%s has %d items', 'cart', 3)", "cart has 3 items"),
    ("console.log('%i %f %d %d', '12.7x', '1.5', '0x10', {})", "12 1.5 16 NaN"),
    ("console.log('%o and %O', {a: 1}, ['x'])", '{a: 1} and ["x"]'),
    ("console.log('%j', {a: ['x', null]})", '{"a":["x",null]}'),
    ("console.log('%cstyled', 'color: red')", "styled"),
    ("console.log('100%', 5)", "100% 5"),
    ("console.log('%d%%', 5)", "5%"),
    ("console.log('%s')", "%s"),
    ("console.log('%s', 'a', 'b', {c: 1})", "a b {c: 1}"),
    ("console.log('%x %s', 1)", "%x 1"),
    ("console.log('%s', Symbol('s'), 5n, -0)", "Symbol(s) 5n -0"),
    ("console.log('%d %i', 5n, Symbol())", "5n NaN"),
    ("console.log(1, '%s', 'x')", "1 %s x"),
    ("console.log(['str'], 'str')", '["str"] str'),
    ("console.group('g'); console.log('in'); console.group(); console.log('a\\nb');"
     "console.groupEnd(); console.groupEnd(); console.groupEnd(); console.log('out')",
     "g\n  in\n    a\n    b\nout"),
    ("console.assert(1, 'no'); console.assert(0, 'yes', 5); console.assert(false)",
     "Assertion failed: yes 5\nAssertion failed"),
    ("console.count(); console.count('x'); console.count(); console.countReset(); console.count()",
     "default: 1\nx: 1\ndefault: 2\ndefault: 1"),
    ("console.dir({a: 1}); console.dir('s')", '{a: 1}\n"s"'),
    ("console.trace('here')", "Trace: here"),
    ("console.time('t'); console.timeEnd('t'); console.log('done')", "done"),
    ("const {log} = console; log('free')", "free"),
    ("[1, 2].forEach(console.log)", "1 0 [1, 2]\n2 1 [1, 2]"),
    ("console.log(console)", "Object [console] {log: [Function: log], info: [Function: info], "),
]  # fmt: skip


@pytest.mark.parametrize(("source", "stdout"), LINES, ids=[source[:40] for source, _ in LINES])
def test_console_prints(guest: Guest, source: str, stdout: str) -> None:
    printed = guest.stdout(source)
    assert printed[: len(stdout)] == stdout
    if not stdout.endswith(", "):
        assert printed == stdout


def test_table_shows_rows_and_columns(guest: Guest) -> None:
    assert guest.stdout("console.table([{a: 1, b: 'x'}, {a: 22}])") == "\n".join(
        [
            "┌─────────┬────┬─────┐",
            "│ (index) │ a  │ b   │",
            "├─────────┼────┼─────┤",
            '│ 0       │ 1  │ "x" │',
            "│ 1       │ 22 │     │",
            "└─────────┴────┴─────┘",
        ]
    )
    assert guest.stdout("console.table({r: [1], s: 5})") == "\n".join(
        [
            "┌─────────┬───┬────────┐",
            "│ (index) │ 0 │ Values │",
            "├─────────┼───┼────────┤",
            "│ r       │ 1 │        │",
            "│ s       │   │ 5      │",
            "└─────────┴───┴────────┘",
        ]
    )
    assert guest.stdout("console.table(5); console.table('x')") == "5\nx"


def test_table_can_be_limited_to_some_columns(guest: Guest) -> None:
    assert "b" not in guest.stdout("console.table([{a: 1, b: 2}], ['a'])")


@pytest.mark.parametrize(
    "argument",
    [
        "Symbol('s')",
        "Object.create(null)",
        "new Proxy({}, {get() { throw 1 }})",
        "{toString() { throw 1 }}",
        "{get a() { throw 1 }}",
        "(() => { const c = []; c[0] = c; return c })()",
        "() => 1",
        "Object.create({get [Symbol.toStringTag]() { throw 1 }})",
    ],
)
@pytest.mark.parametrize(
    "method", ["log", "error", "table", "dir", "assert", "count", "group", "trace", "countReset"]
)
def test_no_argument_makes_a_console_method_throw(guest: Guest, method: str, argument: str) -> None:
    assert guest.text(f"console.{method}({argument}, {argument}); console.groupEnd(); 'after'") == (
        "after"
    )


def test_printing_starts_anew_with_each_eval(guest: Guest) -> None:
    guest.outcome("console.group('open'); console.count()")
    assert guest.stdout("console.log('x'); console.count()") == "x\ndefault: 1"
    assert guest.stdout("1") == ""


def test_what_was_printed_before_an_error_is_kept(guest: Guest) -> None:
    outcome = guest.outcome("console.log('before'); null.x")
    assert outcome.error is not None
    assert outcome.stdout == "before"


def test_the_cap_counts_what_it_leaves_out_to_the_character() -> None:
    guest = Guest(console_chars=10)
    assert guest.stdout("console.log('a'.repeat(10))") == "a" * 10
    assert guest.stdout("console.log('a'.repeat(11))") == "a" * 10 + "… [truncated 1 chars]"
    # Each line break counts: 10 of 4 + 1 + 4 + 1 + 4.
    assert guest.stdout("for (let i = 0; i < 3; i++) console.log('abcd')") == (
        "abcd\nabcd\n… [truncated 4 chars]"
    )
    smile = "\U0001f600"
    assert guest.stdout("console.log('\\u{1f600}'.repeat(25))") == (
        smile * 10 + "… [truncated 15 chars]"
    )
    printed = guest.stdout("console.log('x'.repeat(9)); console.log('\\u{1f600}'.repeat(5))")
    assert printed == "x" * 9 + "\n" + "… [truncated 5 chars]"


def test_a_flood_of_lines_is_counted_and_not_held() -> None:
    guest = Guest(console_chars=4000)
    before = guest.engine.memory()
    printed = guest.stdout("for (let i = 0; i < 20000; i++) console.log('x'.repeat(1000))")
    assert guest.engine.memory() - before < 200_000
    head, _, tail = printed.partition("… [truncated ")
    assert len(head) == 4000
    assert tail == f"{20_000 * 1001 - 1 - 4000} chars]"


def test_one_gigantic_line_is_cut_while_it_is_logged() -> None:
    guest = Guest(console_chars=100)
    printed = guest.stdout("console.log('y'.repeat(3e6), {big: 'z'.repeat(3e6)}); console.log(1)")
    assert printed.startswith("y" * 100 + "… [truncated ")
    assert len(printed) < 140


def test_output_is_well_formed_text(guest: Guest) -> None:
    assert guest.stdout("console.log('a\\ud800', 'b\\u0000')") == "a\ufffd b\0"


def test_logging_inside_a_getter_that_is_being_encoded_is_kept(guest: Guest) -> None:
    assert guest.stdout("({get a() { console.log('read'); return 1 }})") == "read"
