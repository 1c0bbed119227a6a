"""The web-style globals of the prelude: clock, timers, text, URLs, clones, aborts, random numbers.

Every test runs real guest code in a real engine. Time is a number that the tests advance
themselves, as the worker's loop does with the monotonic clock: nothing sleeps.
"""

import base64
import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjs_pool.worker.engine import Engine, Outcome


class Guest:
    """An engine and the loop around it, with a clock of its own."""

    def __init__(self, **options: Any) -> None:
        self.engine = Engine()
        self.engine.set_limits(
            result_chars=100_000, console_chars=100_000, value_bytes=1 << 24, value_nodes=1_000_000
        )
        # A loop in the prelude shall fail its test, not hang it.
        self.engine.set_cpu(20.0)
        self.now_ms = 5_000.0
        if options:
            self.engine.configure_with(options)

    def outcome(self, source: str) -> Outcome:
        """Run one program to its end, letting time pass as its timers want it."""
        engine = self.engine
        engine.run(source, first=True, last=True, boxed=False, want_value=True)
        while True:
            while engine.run_job():
                pass
            status = engine.poll(self.now_ms)
            while engine.run_job():
                pass
            if engine.poll(self.now_ms).settled:
                return engine.finish()
            if status.next_timer_s is None:
                raise AssertionError("the program waits for nothing")
            self.now_ms += status.next_timer_s * 1000.0

    def value(self, source: str) -> Any:
        """The value of a program, through JSON."""
        outcome = self.outcome(source)
        assert outcome.error is None, outcome.error
        assert outcome.value is not None, outcome.value_error
        return json.loads(outcome.value)

    def error(self, source: str) -> tuple[str, str]:
        error = self.outcome(source).error
        assert error is not None, "the program did not throw"
        return error.name, error.message


@pytest.fixture(scope="module")
def guest() -> Guest:
    return Guest()


# --- clock ----------------------------------------------------------------------------------------


def test_the_clock_is_off_by_default(guest: Guest) -> None:
    assert guest.value("[Date.now(), new Date().getTime(), Date().slice(0, 15)]") == [
        0,
        0,
        "Thu Jan 01 1970",
    ]


def test_a_frozen_clock_stands_at_the_start_of_each_eval() -> None:
    guest = Guest(clock="frozen")
    before = time.time() * 1000
    first, moved = guest.value(
        "const t = Date.now(); let n = 0; while (n < 200000) n++; [t, Date.now() - t]"
    )
    second = guest.value("Date.now()")
    after = time.time() * 1000
    assert moved == 0
    assert before - 1 <= first <= second <= after + 1


def test_a_real_clock_moves() -> None:
    guest = Guest(clock="real")
    first = guest.value("Date.now()")
    assert guest.value(f"while (Date.now() === {first}) {{}} Date.now()") > first


@pytest.mark.parametrize(
    "now",
    [
        "new (Object.getPrototypeOf(new Date(5)).constructor)().getTime()",
        "Reflect.construct(Date, []).getTime()",
        "new (class extends Date {})().getTime()",
        "new (class extends Date { constructor() { super() } })().getTime()",
        "(() => { const { constructor: D } = structuredClone(new Date(7)); return D.now() })()",
        "Date.parse(Date())",
        "typeof __date_clock === 'undefined' ? 0 : 1",
        "typeof performance === 'undefined' ? 0 : 1",
    ],
)
def test_no_way_leads_around_the_clock(guest: Guest, now: str) -> None:
    assert guest.value(now) == 0


def test_date_is_otherwise_the_engines_own(guest: Guest) -> None:
    assert guest.value("""
        class Day extends Date { label() { return 'day ' + this.getUTCDate() } }
        const descriptor = Object.getOwnPropertyDescriptor(Date, 'prototype')
        ;[new Date(2020, 0, 31).toISOString(), Date.UTC(2020, 1), new Day(2020, 0, 31).label(),
          new Day(0) instanceof Date, Date.name, Date.length, Date.prototype.constructor === Date,
          descriptor.writable, Object.keys(Date).length, new Date(NaN).getTime() !== 0]
    """) == [
        "2020-01-31T00:00:00.000Z",
        1580515200000,
        "day 31",
        True,
        "Date",
        7,
        True,
        False,
        0,
        True,
    ]


# --- random numbers -------------------------------------------------------------------------------


def test_a_seed_fixes_the_stream_of_random_numbers() -> None:
    draw = """
        [Math.random(), Math.random(), crypto.randomUUID(),
          [...crypto.getRandomValues(new Uint8Array(5))]]
    """
    first, again, other = Guest(seed="00ff"), Guest(seed="00ff"), Guest(seed="00fe")
    drawn = first.value(draw)
    assert again.value(draw) == drawn
    assert other.value(draw) != drawn
    assert first.value(draw) != drawn


def test_reseeding_starts_another_stream(guest: Guest) -> None:
    draws = []
    for seed in ("a1", "a2", "a1"):
        guest.engine.reseed(seed)
        draws.append(guest.value("Math.random()"))
    assert draws[0] == draws[2] != draws[1]


def test_every_part_of_a_long_seed_counts(guest: Guest) -> None:
    base = "0123456789abcdef" * 4
    seeds = [base[:at] + "z" + base[at + 1 :] for at in range(len(base))]
    drawn = set()
    for seed in [base, *seeds]:
        guest.engine.reseed(seed)
        drawn.add(guest.value("Math.random()"))
    assert len(drawn) == len(seeds) + 1


def test_random_numbers_spread_evenly(guest: Guest) -> None:
    guest.engine.reseed("5eed")
    counts = guest.value("""
        const counts = Array(16).fill(0)
        for (let i = 0; i < 16000; i++) counts[Math.floor(Math.random() * 16)]++
        counts
    """)
    assert sum(counts) == 16000
    # 30.6 is the 99 % quantile of chi-square with 15 degrees of freedom; the seed is fixed.
    assert sum((n - 1000) ** 2 / 1000 for n in counts) < 30.6


def test_uuids_have_version_4(guest: Guest) -> None:
    texts = guest.value("Array.from({ length: 50 }, () => crypto.randomUUID())")
    assert len(set(texts)) == 50
    for text in texts:
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, text)


def test_random_values_fill_integer_views_in_place(guest: Guest) -> None:
    assert guest.value("""
        const bytes = new Uint8Array(32), part = bytes.subarray(8, 24)
        const same = crypto.getRandomValues(part) === part
        ;[same, bytes.slice(0, 8).every((b) => b === 0), bytes.slice(24).every((b) => b === 0),
          part.some((b) => b !== 0), crypto.getRandomValues(new BigUint64Array(1))[0] > 0n]
    """) == [True, True, True, True, True]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("crypto.getRandomValues(new Float64Array(1))", "TypeMismatchError"),
        ("crypto.getRandomValues([1])", "TypeMismatchError"),
        ("crypto.getRandomValues(new Uint8Array(65537))", "QuotaExceededError"),
        ("new Crypto()", "TypeError"),
        ("crypto.randomUUID.call({})", "TypeError"),
    ],
)
def test_random_values_are_refused_where_the_standard_refuses(
    guest: Guest, call: str, name: str
) -> None:
    assert guest.error(call)[0] == name


# --- timers ---------------------------------------------------------------------------------------


def test_timers_fire_by_due_time_then_by_creation() -> None:
    assert Guest().value("""
        const seen = []
        for (const [name, ms] of [['c', 20], ['a', 1], ['d', 20], ['b', 1], ['z', 0]]) {
          setTimeout((...args) => seen.push(name + args.join('')), ms, 1, 2)
        }
        new Promise((done) => setTimeout(() => done(seen), 30))
    """) == ["a12", "b12", "z12", "c12", "d12"]


def test_time_passes_as_the_timers_ask() -> None:
    guest = Guest()
    guest.value("new Promise((done) => setTimeout(done, 250))")
    assert guest.now_ms == 5_250.0


def test_a_timer_never_fires_early() -> None:
    guest = Guest()
    engine = guest.engine
    engine.run(
        "new Promise((done) => setTimeout(done, 100))",
        first=True,
        last=True,
        boxed=False,
        want_value=False,
    )
    # It starts to count when the program gives way, whatever time it has computed before.
    assert engine.poll(1_000.0).next_timer_s == pytest.approx(0.1)
    assert engine.poll(1_099.0).next_timer_s == pytest.approx(0.001)
    engine.run_job()
    assert not engine.poll(1_099.0).settled
    engine.poll(1_100.0)
    while engine.run_job():
        pass
    assert engine.poll(1_100.0).settled


def test_promises_settle_between_two_callbacks() -> None:
    assert Guest().value("""
        const seen = []
        setTimeout(() => { seen.push('a'); Promise.resolve().then(() => seen.push('job of a')) }, 5)
        setTimeout(() => seen.push('b'), 5)
        new Promise((done) => setTimeout(() => done(seen), 10))
    """) == ["a", "job of a", "b"]


def test_an_interval_repeats_until_cleared_from_inside() -> None:
    guest = Guest()
    assert (
        guest.value("""
        let n = 0
        new Promise((done) => { const id = setInterval(() => { if (++n === 5) { clearInterval(id);
          done(n) } }, 10) })
    """)
        == 5
    )
    assert guest.now_ms == 5_050.0
    assert guest.engine.poll(guest.now_ms).next_timer_s is None


def test_a_cleared_timer_does_not_fire() -> None:
    assert Guest().value("""
        const seen = []
        const a = setTimeout(() => seen.push('a'), 1), b = setTimeout(() => seen.push('b'), 1)
        const c = setTimeout(() => seen.push('c'), 1)
        clearTimeout(a); clearInterval(String(b)); clearTimeout({ valueOf() { throw 1 } });
          clearTimeout()
        new Promise((done) => setTimeout(() => done([seen, a > 0, b > a, Number.isInteger(c)]), 5))
    """) == [["c"], True, True, True]


@pytest.mark.parametrize(
    "delay", ["0", "-5", "NaN", "undefined", "2147483648", "1e300", "'x'", "Infinity", "0.5"]
)
def test_an_unusable_delay_means_one_millisecond(delay: str) -> None:
    guest = Guest()
    guest.value(f"new Promise((done) => setTimeout(done, {delay}))")
    assert guest.now_ms == 5_001.0


def test_the_number_of_live_timers_is_capped() -> None:
    guest = Guest()
    name, message = guest.error("for (let i = 0; i < 1e6; i++) setTimeout(() => {}, 1e9)")
    assert (name, "10000" in message) == ("RangeError", True)
    # Those that are cleared don't count.
    assert guest.value(
        "for (let i = 1; i < 20000; i++) clearTimeout(i); setTimeout(() => {}, 1) > 0"
    )


def test_setting_and_clearing_leaves_no_memory_behind() -> None:
    guest = Guest()
    loop = "for (let i = 0; i < 20000; i++) clearTimeout(setTimeout(() => {}, 1e6)); 1"
    guest.value(loop)
    before = guest.engine.memory()
    guest.value(loop)
    assert guest.engine.memory() - before < 20_000


def test_an_error_in_a_callback_is_printed_and_the_others_go_on() -> None:
    outcome = Guest().outcome("""
        setTimeout(() => { throw new TypeError('first') }, 1)
        setTimeout(() => { throw { toString() { for (;;) {} } } }, 2)
        new Promise((done) => setTimeout(() => done('still here'), 3))
    """)
    assert outcome.text == "still here"
    assert "TypeError: first" in outcome.stdout


@pytest.mark.parametrize("name", ["setTimeout", "setInterval"])
@pytest.mark.parametrize("handler", ["'alert(1)'", "null", "", "{}"])
def test_a_handler_that_is_no_function_is_refused(guest: Guest, name: str, handler: str) -> None:
    error, message = guest.error(f"{name}({handler})")
    assert error == "TypeError"
    assert name in message


def test_timers_left_over_fire_only_while_a_later_eval_runs() -> None:
    guest = Guest()
    guest.value("globalThis.fired = 0; setTimeout(() => { fired++ }, 10); 1")
    guest.now_ms += 1_000
    assert guest.value("[fired]") == [0]
    assert guest.value("new Promise((done) => setTimeout(() => done(fired), 1))") == 1


def test_many_timers_fire_in_order() -> None:
    assert (
        Guest().value("""
        const delays = Array.from({ length: 500 }, (_, i) => (i * 7919) % 263 + 1), seen = []
        const ids = delays.map((ms) => setTimeout(() => seen.push(ms), ms))
        const kept = delays.filter((_, i) => i % 3 !== 0)
        ids.forEach((id, i) => { if (i % 3 === 0) clearTimeout(id) })
        new Promise((done) => setTimeout(() => done(
          String(seen) === String([...kept].sort((a, b) => a - b)) && seen.length), 300))
    """)
        == 333
    )


# --- text -----------------------------------------------------------------------------------------


def test_text_is_encoded_as_utf8(guest: Guest) -> None:
    assert guest.value(r"Array.from(new TextEncoder().encode('aé€😀\ud800x\udc00'))") == list(
        "aé€😀\ufffdx\ufffd".encode()
    )


def test_encode_into_stops_before_what_no_longer_fits(guest: Guest) -> None:
    assert guest.value("""
        const into = new Uint8Array(5)
        const { read, written } = new TextEncoder().encodeInto('a€😀', into)
        ;[read, written, Array.from(into)]
    """) == [2, 4, [0x61, 0xE2, 0x82, 0xAC, 0]]


@given(data=st.binary(max_size=24), cut=st.integers(0, 24))
@settings(max_examples=150, deadline=None)
def test_utf8_is_decoded_as_python_does_it_also_in_pieces(
    guest: Guest, data: bytes, cut: int
) -> None:
    whole, parts = guest.value(f"""
        const bytes = new Uint8Array({list(data)}), d = new TextDecoder('utf-8',
          {{ ignoreBOM: true }})
        ;[d.decode(bytes), d.decode(bytes.subarray(0, {cut}), {{ stream: true }})
          + d.decode(bytes.subarray({cut}))]
    """)
    assert whole == parts == data.decode("utf-8", "replace")


@given(
    st.lists(
        st.sampled_from(
            [
                0x41,
                0x80,
                0xBF,
                0xC2,
                0xC1,
                0xE0,
                0xA0,
                0x9F,
                0xED,
                0xEF,
                0xF0,
                0x90,
                0x8F,
                0xF4,
                0xF5,
            ]
        ),
        max_size=8,
    )
)
@settings(max_examples=150, deadline=None)
def test_malformed_utf8_is_replaced_by_maximal_subparts(guest: Guest, data: list[int]) -> None:
    assert guest.value(f"new TextDecoder().decode(new Uint8Array({data}))") == bytes(data).decode(
        "utf-8", "replace"
    )


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("utf-16le", "utf-16-le"),
        (" UTF-16 ", "utf-16-le"),
        ("utf-16be", "utf-16-be"),
        ("Latin1", "cp1252"),
    ],
)
def test_other_encodings_are_decoded(guest: Guest, label: str, codec: str) -> None:
    text = "a\u20ac\u0161" if codec == "cp1252" else "a€😀\U0010ffff"
    data = list(text.encode(codec))
    assert guest.value(f"new TextDecoder({label!r}).decode(new Uint8Array({data}))") == text


@pytest.mark.parametrize("size", [2047, 2048, 2049, 100_000])
def test_long_texts_survive_both_ways(guest: Guest, size: int) -> None:
    assert guest.value(f"""
        const text = 'é😀x'.repeat({size}).slice(0, {size}).replace(/[\\ud800-\\udbff]$/, 'x')
        new TextDecoder().decode(new TextEncoder().encode(text)) === text
    """)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([0xff]))", "TypeError"),
        (
            "new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([0xe2, 0x82]))",
            "TypeError",
        ),
        ("new TextDecoder('klingon')", "RangeError"),
        ("new TextDecoder().decode('text')", "TypeError"),
        ("TextEncoder.prototype.encode.call({}, 'x')", "TypeError"),
        ("new TextEncoder().encodeInto('x', {})", "TypeError"),
        ("TextDecoder()", "TypeError"),
    ],
)
def test_text_coders_refuse_what_they_cannot_do(guest: Guest, program: str, name: str) -> None:
    assert guest.error(program)[0] == name


def test_a_byte_order_mark_is_taken_off_the_first_piece_only(guest: Guest) -> None:
    assert (
        guest.value("""
        const mark = new Uint8Array([0xef, 0xbb, 0xbf, 0x61]), d = new TextDecoder()
        d.decode(mark, { stream: true }) + d.decode(mark)
    """)
        == "a\ufeffa"
    )


def test_a_byte_order_mark_is_taken_off_once_unless_asked_for(guest: Guest) -> None:
    assert guest.value(r"""
        const bytes = new Uint8Array([0xef, 0xbb, 0xbf, 0x61, 0xef, 0xbb, 0xbf]),
          d = new TextDecoder()
        const streamed = d.decode(bytes.subarray(0, 2), { stream: true })
          + d.decode(bytes.subarray(2))
        ;[d.decode(bytes), streamed, new TextDecoder('utf8', { ignoreBOM: true }).decode(bytes),
          d.decode(new DataView(bytes.buffer, 3, 1)), d.decode(bytes.buffer).length, d.decode()]
    """) == ["a\ufeff", "a\ufeff", "\ufeffa\ufeff", "a", 2, ""]


@given(st.binary(max_size=60))
@settings(max_examples=100, deadline=None)
def test_base64_is_pythons(guest: Guest, data: bytes) -> None:
    encoded = base64.b64encode(data).decode()
    assert guest.value(f"""
        const back = atob({encoded!r})
        ;[btoa(String.fromCharCode(...{list(data)})), Array.from(back, (c) => c.charCodeAt(0))]
    """) == [encoded, list(data)]


def test_base64_is_forgiving_about_blanks_and_padding_only(guest: Guest) -> None:
    assert guest.value(r"[atob(' aGV\nsbG8 '), atob('aGVsbG8'), atob('')]") == [
        "hello",
        "hello",
        "",
    ]
    for bad in ["a", "a===", "aG=VsbG8", "aG%s", "é", "aGVsbG8=="]:
        assert (
            guest.value(f"""
            let name = 'accepted'
            try {{ atob({bad!r}) }} catch (e) {{ name = e instanceof DOMException && e.name
              + e.code }}
            name
        """)
            == "InvalidCharacterError5"
        ), bad
    assert guest.error("btoa('€')")[0] == "InvalidCharacterError"


def test_a_dom_exception_is_an_error_with_name_and_code(guest: Guest) -> None:
    assert guest.value("""
        const e = new DOMException('gone', 'AbortError')
        ;[e.name, e.message, e.code, e instanceof Error, String(e), Object.keys(e).length,
          DOMException.ABORT_ERR, Object.prototype.toString.call(e), new DOMException().name,
          new DOMException('m', { name: 'DataCloneError', cause: 7 }).cause]
    """) == [
        "AbortError",
        "gone",
        20,
        True,
        "AbortError: gone",
        0,
        20,
        "[object DOMException]",
        "Error",
        7,
    ]
    assert guest.error("throw new DOMException('late', 'TimeoutError')") == ("TimeoutError", "late")


# --- microtasks -----------------------------------------------------------------------------------


def test_microtasks_run_in_order_and_an_error_in_one_is_printed() -> None:
    outcome = Guest().outcome("""
        const seen = []
        queueMicrotask(() => seen.push(1))
        queueMicrotask(() => { throw { toString() { return 'escaped' } } })
        queueMicrotask(() => { throw new RangeError('in a microtask') })
        queueMicrotask(() => seen.push(2))
        new Promise((done) => setTimeout(() => done(seen), 1))
    """)
    assert outcome.text == "[1, 2]"
    assert "RangeError: in a microtask" in outcome.stdout


def test_a_finalizer_that_throws_does_not_break_the_engine() -> None:
    guest = Guest()
    guest.value("""
        if (typeof FinalizationRegistry === 'function') {
          const bad = { toString() { return 'escaped' } }
          globalThis.registry = new FinalizationRegistry(() => { throw bad })
          for (let i = 0; i < 10; i++) registry.register({}, i)
        }
        1
    """)
    assert guest.value("[1].map((n) => n + 1)") == [2]


# --- URL ------------------------------------------------------------------------------------------

# From the examples and rules of the WHATWG URL standard.
HREFS = [
    ("https:example.org", None, "https://example.org/"),
    ("https://////example.com///", None, "https://example.com///"),
    ("https://example.com/././foo", None, "https://example.com/foo"),
    ("hello:world", "https://example.com", "hello:world"),
    ("https:example.org", "https://example.com", "https://example.com/example.org"),
    ("\\example\\..\\demo/.\\", "https://example.com", "https://example.com/demo/"),
    ("example", "https://example.com/demo", "https://example.com/example"),
    ("file:///C|/demo", None, "file:///C:/demo"),
    ("..", "file:///C:/demo", "file:///C:/"),
    ("file://loc%61lhost/", None, "file:///"),
    ("https://user:password@example.org/", None, "https://user:password@example.org/"),
    ("https://example.org/foo bar", None, "https://example.org/foo%20bar"),
    ("https://EXAMPLE.com/../x", None, "https://example.com/x"),
    (" \thttps://exa\nmple.com:443/ ", None, "https://example.com/"),
    ("http://0x7F.1", None, "http://127.0.0.1/"),
    ("http://4294967295/", None, "http://255.255.255.255/"),
    ("http://[1:0::]:8080/", None, "http://[1::]:8080/"),
    ("http://[::ffff:1.2.3.4]/", None, "http://[::ffff:102:304]/"),
    ("http://[1:0:0:2:0:0:0:3]/", None, "http://[1:0:0:2::3]/"),
    ("http://bücher.de/ü?é#ö", None, "http://xn--bcher-kva.de/%C3%BC?%C3%A9#%C3%B6"),
    ("http://日本語.jp", None, "http://xn--wgv71a119e.jp/"),
    ("http://\uff27\uff2f.com", None, "http://go.com/"),
    ("mailto:a@b.c?x=1", None, "mailto:a@b.c?x=1"),
    ("data:text/plain, a  #x", None, "data:text/plain, a %20#x"),
    ("foo:/.//p", None, "foo:/.//p"),
    ("foo://h/a/%2e%2E/b", None, "foo://h/b"),
    ("//x/y?z", "https://a/b", "https://x/y?z"),
    ("?q", "https://a/b/c?d#e", "https://a/b/c?q"),
    ("#f", "mailto:x", "mailto:x#f"),
    ("", "https://a/b?c#d", "https://a/b?c"),
    ("http://a/?'\"<>`", None, "http://a/?%27%22%3C%3E`"),
    ("http://u@:p@h/", None, "http://u%40:p@h/"),
]


@pytest.mark.parametrize(("text", "base", "href"), HREFS)
def test_urls_are_parsed_as_the_standard_says(
    guest: Guest, text: str, base: str | None, href: str
) -> None:
    arguments = json.dumps([text] if base is None else [text, base])
    assert guest.value(f"new URL(...{arguments}).href") == href
    assert guest.value(f"new URL(new URL(...{arguments}).href).href") == href


@pytest.mark.parametrize(
    "text",
    [
        "nope",
        "",
        "https://ex ample.org/",
        "https://exa%23mple.org",
        "http://a:99999/",
        "http://[1::2::3]/",
        "http://1.2.3.256/",
        "http://256.0x/..",
        "http://",
        "http://@/",
        "https://user@",
        "foo://a b/",
        "//x",
        "http://[::1",
    ],
)
def test_invalid_urls_are_refused_everywhere(guest: Guest, text: str) -> None:
    name, message = guest.error(f"new URL({json.dumps(text)})")
    assert (name, message) == ("TypeError", f"Invalid URL: '{text}'")
    assert guest.value(f"[URL.canParse({json.dumps(text)}), URL.parse({json.dumps(text)})]") == [
        False,
        None,
    ]


def test_a_url_has_its_parts(guest: Guest) -> None:
    assert guest.value("""
        const u = new URL('https://us%20er:pw@example.com:8443/a/b?x=1&y=%C3%A9#frag')
        ;[u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname,
          u.search,
          u.hash, u.searchParams.get('y'), String(u) === u.href,
            JSON.stringify({ u }) === `{"u":"${u}"}`]
    """) == [
        "https://example.com:8443",
        "https:",
        "us%20er",
        "pw",
        "example.com:8443",
        "example.com",
        "8443",
        "/a/b",
        "?x=1&y=%C3%A9",
        "#frag",
        "é",
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("start", "change", "href"),
    [
        ("http://a:81/p", "u.protocol = 'https'", "https://a:81/p"),
        ("http://a/p", "u.protocol = 'foo'", "http://a/p"),
        ("http://a/p", "u.host = 'b:8080'", "http://b:8080/p"),
        ("http://a/p", "u.hostname = 'b:8080'", "http://a/p"),
        ("http://a:1/p", "u.port = ''", "http://a/p"),
        ("http://a/p", "u.port = '80'", "http://a/p"),
        ("http://a/p", "u.port = '99999'", "http://a/p"),
        ("http://a/p", "u.pathname = 'x y/../z?'", "http://a/z%3F"),
        ("http://a/p", "u.search = 'q=a b'", "http://a/p?q=a%20b"),
        ("http://a/p?q", "u.search = ''", "http://a/p"),
        ("http://a/p", "u.hash = 'x y'", "http://a/p#x%20y"),
        ("http://a/p#x", "u.hash = ''", "http://a/p"),
        ("http://a/p", "u.username = 'me@'; u.password = 'x'", "http://me%40:x@a/p"),
        ("mailto:x", "u.host = 'b'; u.username = 'u'; u.pathname = 'y'", "mailto:x"),
        ("http://a/p", "u.href = 'ftp://b/'", "ftp://b/"),
    ],
)
def test_setting_a_part_changes_the_url_or_nothing(
    guest: Guest, start: str, change: str, href: str
) -> None:
    assert guest.value(f"const u = new URL({start!r}); {change}; u.href") == href


def test_search_params_and_url_follow_each_other(guest: Guest) -> None:
    assert guest.value("""
        const u = new URL('https://a/?x=1&x=2&y=3'), p = u.searchParams, seen = []
        p.append('z', 'a b&c'); seen.push(u.href)
        p.delete('x', '1'); seen.push(u.search)
        p.set('y', '€'); seen.push(u.search)
        u.search = '?n=+%2B'; seen.push(p.get('n'), p.size, p === u.searchParams)
        p.delete('n'); seen.push(u.href)
        u.href = 'https://b/?k=v'; seen.push(p.toString())
        seen
    """) == [
        "https://a/?x=1&x=2&y=3&z=a+b%26c",
        "?x=2&y=3&z=a+b%26c",
        "?x=2&y=%E2%82%AC&z=a+b%26c",
        " +",
        1,
        True,
        "https://a/",
        "k=v",
    ]


def test_search_params_are_built_from_text_pairs_records_and_each_other(guest: Guest) -> None:
    assert guest.value("""
        const made = [new URLSearchParams('?a=1&b=2&a=3&&c'), new URLSearchParams([['a', 1], ['b',
          'x']]),
          new URLSearchParams({ a: 1, b: [2, 3] }), new URLSearchParams(new Map([['m', 1]])),
            new URLSearchParams()]
        made.push(new URLSearchParams(made[0]))
        made[0].append('later', '1')
        const [p] = made
        made.map(String).concat([p.getAll('a').join(), p.has('c'), p.has('a', '2'), p.get('nope'),
          JSON.stringify([...p]), [...p.keys()].join(), [...p.values()].join()])
    """) == [
        "a=1&b=2&a=3&c=&later=1",
        "a=1&b=x",
        "a=1&b=2%2C3",
        "m=1",
        "",
        "a=1&b=2&a=3&c=",
        "1,3",
        True,
        False,
        None,
        '[["a","1"],["b","2"],["a","3"],["c",""],["later","1"]]',
        "a,b,a,c,later",
        "1,2,3,,1",
    ]


def test_search_params_sort_by_name_and_keep_equal_names_in_order(guest: Guest) -> None:
    assert (
        guest.value("""
        const p = new URLSearchParams('z=1&a=2&z=0&ä=3&a=1'), seen = []
        p.sort(); p.forEach((value, name, all) => seen.push(name + value + (all === p)))
        seen.join()
    """)
        == "a2true,a1true,z1true,z0true,ä3true"
    )


def test_urls_are_shown_as_their_text(guest: Guest) -> None:
    assert (
        guest.outcome("[new URL('https://a/b?c=1'), new URL('https://a/?c=1').searchParams]").text
        == "[URL(https://a/b?c=1), URLSearchParams(c=1)]"
    )


# --- structuredClone ------------------------------------------------------------------------------


def test_a_clone_is_equal_and_apart(guest: Guest) -> None:
    assert guest.value("""
        const shared = { n: 1 }
        const source = {
          list: [1, , 'x', undefined], shared, again: shared, map: new Map([[shared, new Set([1,
            shared])]]),
          date: new Date(5), regexp: /a(b)/giy, big: 10n, boxed: [new Number(4), new String('s'),
            new Boolean(false)],
          bytes: new Uint8Array([1, 2, 3]).subarray(1), view: new DataView(new ArrayBuffer(4), 1,
            2),
          get computed() { return 'by getter' }, [Symbol('s')]: 1, ['__proto__']: 'own',
            nothing: null,
        }
        source.self = source
        source.regexp.lastIndex = 1
        const c = structuredClone(source)
        ;[c !== source && c.self === c, c.list.length === 4 && !(1 in c.list) && 3 in c.list,
          c.shared !== shared && c.shared === c.again && c.map.get(c.shared).has(c.shared),
            c.map instanceof Map,
          c.date.getTime() === 5 && c.date !== source.date, String(c.regexp) === '/a(b)/giy'
            && c.regexp.lastIndex === 0,
          c.big === 10n, c.boxed.every((b) => typeof b === 'object') && c.boxed[0] + 1 === 5,
          c.bytes.join() === '2,3' && c.bytes.byteOffset === 1
            && c.bytes.buffer !== source.bytes.buffer,
          c.view.byteOffset === 1 && c.view.byteLength === 2, c.computed,
            Object.getOwnPropertySymbols(c).length,
          Object.getOwnPropertyDescriptor(c, '__proto__').value, c.nothing]
    """) == [True] * 10 + ["by getter", 0, "own", None]


def test_views_of_one_buffer_share_it_in_the_clone(guest: Guest) -> None:
    assert guest.value("""
        const b = new ArrayBuffer(8), c = structuredClone({ a: new Uint8Array(b),
          d: new Float64Array(b), b })
        c.a[7] = 64
        ;[c.a.buffer === c.b && c.d.buffer === c.b, c.d[0] !== 0, new Uint8Array(b)[7],
          structuredClone(b, { transfer: [b] }).byteLength]
    """) == [True, True, 0, 8]


def test_errors_are_cloned_as_errors_of_a_known_kind(guest: Guest) -> None:
    assert guest.value("""
        class Mine extends Error { constructor(m) { super(m); this.name = 'Mine'; this.extra = 1 } }
        const bad = new TypeError('bad'); Object.defineProperty(bad, 'cause',
          { value: new Mine('why') })
        const c = structuredClone(bad)
        ;[c instanceof TypeError, c.message, Object.keys(c).length, c.cause.constructor === Error,
          c.cause.message,
          'extra' in c.cause, c.stack === bad.stack]
    """) == [True, "bad", 0, True, "why", False, True]


def test_class_instances_become_plain_objects(guest: Guest) -> None:
    assert guest.value("""
        class P { constructor() { this.x = 1 } get y() { return 2 } }
        const c = structuredClone(new P())
        ;[Object.getPrototypeOf(c) === Object.prototype, Object.keys(c).join(),
          structuredClone(Object.create(null)) instanceof Object]
    """) == [True, "x", True]


@pytest.mark.parametrize(
    "value",
    [
        "() => 1",
        "Symbol('s')",
        "Object(Symbol('s'))",
        "new WeakMap()",
        "new WeakSet()",
        "Promise.resolve(1)",
        "new URL('https://a')",
        "new AbortController()",
        "new Proxy({}, {})",
        "class {}",
    ],
)
def test_what_is_no_data_is_not_cloned(guest: Guest, value: str) -> None:
    assert guest.error(f"structuredClone({{ deep: [{value}] }})")[0] == "DataCloneError"


def test_the_error_of_a_getter_comes_through(guest: Guest) -> None:
    assert guest.error("structuredClone({ get a() { throw new RangeError('mine') } })") == (
        "RangeError",
        "mine",
    )


def test_a_list_of_50000_links_is_cloned(guest: Guest) -> None:
    assert (
        guest.value("""
        let chain = null
        for (let i = 0; i < 50000; i++) chain = { next: chain }
        let n = 0
        for (let at = structuredClone(chain); at !== null; at = at.next) n++
        chain = null
        n
    """)
        == 50000
    )


# --- events and aborts ----------------------------------------------------------------------------


def test_listeners_are_called_once_each_in_order(guest: Guest) -> None:
    assert guest.value("""
        const t = new EventTarget(), seen = [], f = (e) => seen.push('f ' + (e.target === t)
          + e.eventPhase)
        t.addEventListener('x', f); t.addEventListener('x', f)
        t.addEventListener('x', () => seen.push('once'), { once: true })
        t.addEventListener('x', { handleEvent(e) { seen.push('object ' + e.type);
          e.preventDefault() } })
        const goesOn = t.dispatchEvent(new Event('x', { cancelable: true }))
        t.removeEventListener('x', f)
        const second = t.dispatchEvent(new Event('x'))
        ;[seen, goesOn, second]
    """) == [["f true2", "once", "object x", "object x"], False, True]


def test_a_listener_that_throws_or_stops_the_event(guest: Guest) -> None:
    outcome = guest.outcome("""
        const t = new EventTarget(), seen = []
        t.addEventListener('x', () => { throw new Error('listener') })
        t.addEventListener('x', (e) => { seen.push('second'); e.stopImmediatePropagation() })
        t.addEventListener('x', () => seen.push('never'))
        t.dispatchEvent(new Event('x'))
        seen
    """)
    assert outcome.text == '["second"]'
    assert "Error: listener" in outcome.stdout


def test_an_abort_reaches_everyone_who_listens(guest: Guest) -> None:
    assert guest.value("""
        const c = new AbortController(), seen = [], s = c.signal, any = AbortSignal.any([s,
          new AbortController().signal])
        s.onabort = (e) => seen.push('on' + e.type)
        s.addEventListener('abort', (e) => seen.push('listener ' + s.aborted + e.isTrusted))
        any.addEventListener('abort', () => seen.push('any'))
        const t = new EventTarget(); t.addEventListener('x', () => seen.push('never'),
          { signal: s })
        c.abort(); c.abort('twice'); t.dispatchEvent(new Event('x'))
        let thrown; try { any.throwIfAborted() } catch (e) { thrown = e }
        ;[seen, s.reason.name, s.reason.code, thrown === s.reason, AbortSignal.abort(7).reason,
          AbortSignal.any([AbortSignal.abort(8)]).reason, s instanceof EventTarget]
    """) == [["any", "onabort", "listener truetrue"], "AbortError", 20, True, 7, 8, True]


def test_a_timeout_signal_aborts_when_its_time_is_up() -> None:
    guest = Guest()
    assert guest.value("""
        const s = AbortSignal.timeout(500)
        new Promise((done) => s.addEventListener('abort', () => done([s.reason.name, s.aborted])))
    """) == ["TimeoutError", True]
    assert guest.now_ms == 5_500.0


@pytest.mark.parametrize(
    "program",
    [
        "new AbortSignal()",
        "Object.getOwnPropertyDescriptor(AbortSignal.prototype, 'aborted').get.call({})",
        "AbortController.prototype.abort.call(1)",
        "new EventTarget().dispatchEvent({})",
        "AbortSignal.any([{}])",
        "URL.prototype.toString.call({})",
        "URLSearchParams.prototype.get.call(new Map(), 'x')",
        "Event.prototype.preventDefault()",
        "URL('https://a')",
    ],
)
def test_illegal_receivers_and_constructors_are_type_errors(guest: Guest, program: str) -> None:
    assert guest.error(program)[0] == "TypeError"


def test_globals_are_hidden_tagged_and_replaceable(guest: Guest) -> None:
    names = [
        "Date",
        "URL",
        "URLSearchParams",
        "TextEncoder",
        "TextDecoder",
        "AbortController",
        "AbortSignal",
        "Event",
        "EventTarget",
        "DOMException",
        "crypto",
        "Crypto",
        "structuredClone",
        "atob",
        "btoa",
        "queueMicrotask",
        "setTimeout",
        "setInterval",
    ]
    assert (
        guest.value(f"""
        {json.dumps(names)}.filter((name) => {{
          const d = Object.getOwnPropertyDescriptor(globalThis, name)
          return d === undefined || d.enumerable || !d.writable || !d.configurable
        }})
    """)
        == []
    )
    assert guest.value("""
        [new URL('a:b'), new URLSearchParams(), new TextEncoder(), new TextDecoder(),
          new AbortController(),
          new AbortController().signal, new Event('x'), new EventTarget(), crypto]
          .map((o) => Object.prototype.toString.call(o) + Object.keys(o).length
            + Object.keys(Object.getPrototypeOf(o)).length).join()
    """) == ",".join(
        f"[object {name}]00"
        for name in [
            "URL",
            "URLSearchParams",
            "TextEncoder",
            "TextDecoder",
            "AbortController",
            "AbortSignal",
            "Event",
            "EventTarget",
            "Crypto",
        ]
    )


# --- hostile guests -------------------------------------------------------------------------------

SABOTAGE = """
    globalThis.hits = []
    const O = Object, { defineProperty } = O, { ownKeys } = Reflect, text = String
    const spoil = (object) => {
      const keys = ownKeys(object)
      for (let i = 0; i < keys.length; i++) {
        const key = keys[i]
        if (key === 'constructor' || key === 'prototype') continue
        try {
          defineProperty(object, key, {
            get() { hits[hits.length] = text(key); throw 'spoilt' },
            set() { hits[hits.length] = text(key) }, configurable: true,
          })
        } catch {}
      }
    }
    const victims = [Map, Set, WeakMap, WeakSet, Date, RegExp, ArrayBuffer, DataView, Promise,
      Number,
      Boolean, BigInt, Symbol, Error, TypeError, RangeError, O.getPrototypeOf(Uint8Array),
        Uint8Array,
      URL, URLSearchParams, AbortSignal, EventTarget, DOMException, Array, Function, String]
    for (let i = 0; i < victims.length; i++) spoil(victims[i].prototype)
    const statics = [Math, JSON, Number, Array, String, Promise, ArrayBuffer, Date, Reflect]
    for (let i = 0; i < statics.length; i++) spoil(statics[i])
    const shadows = ['get', 'set', 'value', 'writable', 'then', 'toJSON', 'name', 'stream',
      'once', '0', '1']
    for (let i = 0; i < shadows.length; i++) {
      defineProperty(O.prototype, shadows[i], {
        __proto__: null, configurable: true,
        get() { hits[hits.length] = shadows[i] },
        set(value) { defineProperty(this, shadows[i], { __proto__: null, value, writable: true,
          configurable: true }) },
      })
    }
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("new U('../x?a=1#b', 'https://h:1/p/q').href", "https://h:1/x?a=1#b"),
        (
            "const u = new U('https://[1::2]/?a=1'); h(u).append('b', 'é &'); toText(u)",
            "https://[1::2]/?a=1&b=%C3%A9+%26",
        ),
        ("new U('http://bücher.de').hostname", "xn--bcher-kva.de"),
        ("new Decoder().decode(new Encoder().encode('é€😀')) + ''", "é€😀"),
        ("back(base('hello'))", "hello"),
        ("typeof uuid()", "string"),
        ("clone(source).b.c[1] + ''", "2"),
        ("const id = later(() => 1, 5, 6); never(id); typeof id", "number"),
        ("now() + ''", "0"),
        ("(random() < 1) + ''", "true"),
    ],
)
def test_everything_works_after_the_guest_spoilt_the_prototypes(
    program: str, expected: str
) -> None:
    guest = Guest()
    prepare = """
        globalThis.U = URL; globalThis.Encoder = TextEncoder; globalThis.Decoder = TextDecoder
        globalThis.back = atob; globalThis.base = btoa; globalThis.clone = structuredClone
        globalThis.later = setTimeout; globalThis.never = clearTimeout; globalThis.now = Date.now
        globalThis.random = Math.random; globalThis.source = { a: 1, b: { c: [1, 2, 3] } }
        const bind = Function.prototype.bind, call = Function.prototype.call,
          uncurry = bind.bind(call)
        globalThis.uuid = crypto.randomUUID.bind(crypto);
          globalThis.toText = uncurry(URL.prototype.toString)
        const params = uncurry(Object.getOwnPropertyDescriptor(URL.prototype, 'searchParams').get)
        const append = uncurry(URLSearchParams.prototype.append)
        globalThis.h = (url) => ({ __proto__: null, append: (k, v) => append(params(url), k, v) })
        const href = Object.getOwnPropertyDescriptor(URL.prototype, 'href')
        const hostname = Object.getOwnPropertyDescriptor(URL.prototype, 'hostname')
    """
    # The accessors that the programs read by name have to stay: they are not what is tested.
    restore = "O.setPrototypeOf(href, null); O.setPrototypeOf(hostname, null);"
    restore += "defineProperty(U.prototype, 'href', href);"
    restore += "defineProperty(U.prototype, 'hostname', hostname);"
    restore += "hits.length = 0; 1"
    guest.value(prepare + SABOTAGE + restore)
    outcome = guest.outcome(program)
    assert outcome.error is None, outcome.error
    assert outcome.text == expected
    assert guest.outcome("hits.length").text == "0"


def test_the_engine_calls_no_hook_of_the_guests_when_it_throws(guest: Guest) -> None:
    assert (
        guest.value("""
        let hooked = 0
        try { Error.prepareStackTrace = () => { hooked++ } } catch {}
        try { Object.defineProperty(Error, 'stackTraceLimit', { get() { hooked++ } }) } catch {}
        try { Error.stackTraceLimit = { valueOf() { hooked++ } } } catch {}
        try { null.x } catch (e) { e.stack }
        structuredClone([Object.create({}), new Date(0)])
        new Error('x').stack
        hooked
    """)
        == 0
    )


def test_template_literals_of_the_prelude_are_out_of_the_guests_reach(guest: Guest) -> None:
    # QuickJS compiles `a${b}` to a call of "a".concat(b).
    outcome = guest.outcome("""
        try { String.prototype.concat = () => 'spoofed' } catch {}
        try { Object.defineProperty(String.prototype, 'concat',
          { value: () => 'spoofed' }) } catch {}
        try { delete String.prototype.concat } catch {}
        console.log(new Map([[1, 2]]))
        ;[`a${1}b`, new Error('e'), new URL('https://[::1]:8/')]
    """)
    assert outcome.text == '["a1b", Error: e, URL(https://[::1]:8/)]'
    assert outcome.stdout == "Map(1) {1 => 2}"


def test_a_spoilt_iterator_does_not_reach_timers_and_listeners() -> None:
    guest = Guest()
    assert (
        guest.value("""
        Array.prototype[Symbol.iterator] = () => { throw new Error('iterated') }
        Function.prototype.call = Function.prototype.apply = () => { throw new Error('called') }
        new Promise((done) => {
          const c = new AbortController()
          c.signal.addEventListener('abort', () => done('aborted'))
          setTimeout((a, b) => { if (a + b === 3) c.abort() }, 5, 1, 2)
        })
    """)
        == "aborted"
    )


@pytest.fixture
def limited() -> Callable[[str], str]:
    def run(source: str) -> str:
        guest = Guest()
        guest.engine.set_memory(32 << 20)
        guest.engine.set_stack(512 << 10)
        outcome = guest.outcome(source)
        return str(outcome.error.name if outcome.error else outcome.text)

    return run


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "function f() { try { return f() } catch { return new URL('https://a/b').href } } f()",
            "RangeError",
        ),
        ("const big = 'é'.repeat(1e6); new TextEncoder().encode(big).length", "2000000"),
        ("new URLSearchParams('a&'.repeat(20000)).size", "20000"),
        ("new URL('https://h/' + 'a/'.repeat(20000)).pathname.length", "40001"),
        ("new URL('https://' + 'é'.repeat(300) + '.de').href.length > 300", "true"),
    ],
)
def test_large_and_deep_inputs_end_well(
    limited: Callable[[str], str], source: str, expected: str
) -> None:
    assert limited(source) in (expected, "https://a/b")
