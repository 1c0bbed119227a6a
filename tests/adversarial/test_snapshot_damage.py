"""Damaged and hostile snapshots: refused or harmless, and nothing else comes to harm.

The envelope is made right on purpose here (an attacker without a signing key can do that): what is
tried is what lies inside. Each test ends with the proof that the pool still serves.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator
from typing import Any, Final

import psutil
import pytest

from qjs_pool import Limits, Pool, SnapshotRejected
from qjs_pool.snapshots import open_sealed, seal
from qjs_pool.wire import documents
from qjs_pool.wire.documents import Global, Manifest

_CPU_S: Final = 1.0


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(limits=Limits(memory=64 << 20, cpu=_CPU_S, wall=5.0), min_idle=1) as pool:
        yield pool
        with pool.session() as session:
            assert session.eval("6 * 7").text == "42"


def _blob(*texts: str, order: list[int] | None = None, modules: list[str] | None = None) -> bytes:
    numbers = list(range(len(texts))) if order is None else order
    manifest = Manifest(
        documents.FORMAT, [Global("x", "object", n, 1) for n in numbers], modules or []
    )
    return seal(
        documents.join(
            documents.store(documents.encode_manifest(manifest)),
            [documents.store(text.encode()) for text in texts],
        )
    )


def _document(*nodes: Any, value: Any = None) -> str:
    return json.dumps([1, [["x", [0] if value is None else value]], list(nodes)])


_REFUSED: Final = {
    "no JSON": "{",
    "no list": "{}",
    "another format": json.dumps([2, [], []]),
    "too short": json.dumps([1, []]),
    "globals that are none": json.dumps([1, 5, []]),
    "nodes that are none": json.dumps([1, [], {}]),
    "a node that is none": json.dumps([1, [["x", [0]]], [7]]),
    "an unknown kind": _document(["?", []]),
    "a kind named like an inherited property": _document(["constructor", []]),
    "a value named like an inherited property": _document(["o"], value=["toString"]),
    "a reference past the end": _document(["o"], value=[1]),
    "a negative reference": _document(["o"], value=[-1]),
    "a fractional reference": _document(["o"], value=[0.5]),
    "an array longer than arrays can be": _document(["A", [4294967296]]),
    "an array of negative length": _document(["A", [-1]]),
    "a view past its buffer": _document(["v", ["Uint8Array", [1], 0, 100]], ["B", ["AAAA"]]),
    "a view of 2^32 items": _document(["v", ["Float64Array", [1], 0, 4294967296]], ["B", ["AAAA"]]),
    "a view of a negative offset": _document(["v", ["Uint8Array", [1], -1, 1]], ["B", ["AAAA"]]),
    "a view of what is no buffer": _document(["v", ["Uint8Array", [1], 0, 1]], ["o"]),
    "a view of an unknown type": _document(["v", ["__proto__", [1], 0, 1]], ["B", ["AAAA"]]),
    "a prototype cycle": _document(["o", 0, [], [1]], ["o", 0, [], [0]]),
    "a prototype of nothing": _document(["P", [[1]]], ["o"]),
    "a member that is not there": _document(
        ["M", [[1], "p", "nope", "value", "n", 0]], ["c", ["class A {}", 1, "A", 0]]
    ),
    "classes that extend each other": _document(
        ["c", ["class A extends $h {}", [1], "A", 0]], ["c", ["class B extends $h {}", [0], "B", 0]]
    ),
    "a source that is no function": _document(["f", ["5", 0, "f", 0]]),
    "a source with a syntax error": _document(["f", ["=> 1", 0, "f", 0]]),
    "a source that throws": _document(["f", ["(() => { throw 1 })()", 0, "f", 0]]),
    "a class that is no class": _document(["c", ["() => 1", 1, "f", 0]]),
    "a proxy for a function": _document(["f", ["new Proxy(() => 1, {})", 0, "f", 0]]),
    "a regular expression that is none": _document(["r", ["(", "g", 0]]),
    "a URL that is none": _document(["U", ["nope"]]),
    "a key that is no key": _document(["o", 0, [[7, 5], 1]]),
    "attributes out of range": _document(["o", 0, [[99, "a"], 1]]),
    "a property without a value": _document(["o", 0, ["a"]]),
    "an accessor of a number": _document(["o", 0, [[15, "a"], 1, 2]]),
    "half of a Map's entry": _document(["m", ["k"]]),
    "a BigInt without digits": _document(["o"], value=["b", "-"]),
    "nested deeper than the engine goes": "[1,[],[" + "[" * 100_000 + "]" * 100_000 + "]]",
    "a constant of the sandbox": json.dumps([1, [[[8, "x"], 5, 6]], []]),
}  # fmt: skip


@pytest.mark.parametrize("text", _REFUSED.values(), ids=_REFUSED.keys())
def test_damaged_document_is_refused(pool: Pool, text: str) -> None:
    with pytest.raises(SnapshotRejected, match="the snapshot was refused"):
        pool.session(snapshot=_blob(text))
    with pool.session() as session:
        assert session.eval("1").text == "1"


_HARMLESS: Final = {
    "a list of 2^32 - 1 holes": (_document(["A", [4294967295]]), "x.length", "4294967295"),
    "a __proto__ key": (
        _document(["o", 0, ["__proto__", [{"polluted": 1}, 0]]]),
        "[x.polluted, ({}).polluted, Object.keys(x)]",
        '[undefined, undefined, ["__proto__"]]',
    ),
    "a __proto__ key in plain data": (
        '[1,[["x",[0]]],[["j",{"__proto__":{"polluted":1}}]]]',
        "[x.polluted, ({}).polluted]",
        "[undefined, undefined]",
    ),
    "a global named __proto__": (
        '[1,[["__proto__",[{"polluted":1},0]]],[]]',
        "[typeof polluted, ({}).polluted]",
        '["undefined", undefined]',
    ),
    "a global of the base image": (
        json.dumps([1, [["JSON", 5]], []]),
        "[JSON, [...'ab'].length, await 3]",  # as after `JSON = 5`
        "[5, 2, 3]",
    ),
    "a global that is put back at each eval": (
        json.dumps([1, [["console", 5]], []]),
        "typeof console.log",
        "function",
    ),
    "the bridge's own name": (
        json.dumps([1, [["$qjs_own", 5]], []]),
        "typeof $qjs_own",
        "function",
    ),
    "an object that no session has": (
        _document(value=["i", "no.such.thing"]),
        "typeof x",
        "function",
    ),
    "a tool that this session lacks": (_document(value=["t", "search"]), "typeof x", "function"),
    "a source that poisons prototypes": (
        _document(
            ["f", ["(Array.prototype.push = Object.prototype.value = 1, () => 7)", 0, "f", 0]]
        ),
        "x()",
        "7",
    ),
}


@pytest.mark.parametrize(("text", "question", "answer"), _HARMLESS.values(), ids=_HARMLESS.keys())
def test_odd_document_does_no_more_than_guest_code_could(
    pool: Pool, text: str, question: str, answer: str
) -> None:
    with pool.session(snapshot=_blob(text)) as session:
        assert session.eval(question).text == answer
    with pool.session() as session:
        assert session.eval("[typeof x, [].push === undefined, ({}).polluted]").text == (
            '["undefined", false, undefined]'
        )


@pytest.mark.parametrize(
    "source",
    [
        "(() => { for (;;) {} })()",
        "class { static { for (;;) {} } }",
        "(() => { const l = []; for (;;) l.push(new ArrayBuffer(1 << 20)) })()",
        "(function f() { return f() + f() })()",
        "(() => { Promise.resolve().then(function f() { Promise.resolve().then(f) }); return 1 })",
        "[1].sort(() => { for (;;) {} })",
    ],
)
def test_source_that_never_ends_or_eats_memory_is_stopped(pool: Pool, source: str) -> None:
    started = time.monotonic()
    before = psutil.Process().memory_info().rss
    with contextlib.suppress(SnapshotRejected):
        pool.session(snapshot=_blob(_document(["f", [source, 0, "f", 0]]))).close()
    assert time.monotonic() - started < _CPU_S + 5.0
    assert psutil.Process().memory_info().rss - before < 32 << 20
    with pool.session() as session:
        assert session.eval("1").text == "1"


def test_decompression_bombs_are_refused_by_the_worker(pool: Pool) -> None:
    bomb = documents.store(b"[" + b" " * (200 << 20) + b"]")
    assert len(bomb) < 100_000
    head = documents.store(
        documents.encode_manifest(Manifest(documents.FORMAT, [Global("x", "object", 0, 1)], []))
    )
    with pytest.raises(SnapshotRejected, match="unpacks to more than"):
        pool.session(snapshot=seal(documents.join(head, [bomb])))
    # Each alone would fit.
    part = documents.store(b"[1,[],[]" + b" " * (40 << 20) + b"]")
    with pytest.raises(SnapshotRejected, match="unpacks to more than"):
        pool.session(snapshot=seal(documents.join(head, [part, part])))


def test_a_frame_that_lies_about_its_size_is_refused(pool: Pool) -> None:
    stored = bytearray(documents.store(b"[1,[],[]]" + b" " * 1000))
    assert stored[0] == 1
    for at in range(1, len(stored)):
        for value in (0x00, 0xFF, stored[at] ^ 1):
            changed = bytes(stored[:at]) + bytes([value]) + bytes(stored[at + 1 :])
            with contextlib.suppress(documents.BadDocument):
                assert len(documents.unstore(changed, 4096)) <= 4096


@pytest.mark.parametrize(
    "order",
    [[0, 0], [1], [0, 1], [4294967295], [-1]],
    ids=["twice", "past", "more", "huge", "negative"],
)
def test_an_order_of_globals_that_does_not_fit_is_refused(pool: Pool, order: list[int]) -> None:
    with pytest.raises(SnapshotRejected):
        pool.session(snapshot=_blob(json.dumps([1, [["x", 1]], []]), order=order))


def test_modules_that_are_not_there_or_never_end_are_no_way_out() -> None:
    endless = {"index.js": "for (;;) {}"}
    calls = {"index.js": "export const v = await globalThis.tools.search({})"}
    called: list[Any] = []
    with Pool(
        limits=Limits(cpu=_CPU_S, wall=5.0), modules={"@/endless": endless, "@/calls": calls}
    ) as pool:
        text = _document(value=["m", "@/none/index.js", "v"])
        with pool.session(snapshot=_blob(text, modules=["@/none/index.js", "../../x"])) as session:
            assert session.eval("typeof x").text == "function"
        tools = {"search": called.append}
        blob = _blob(text, modules=["@/calls/index.js"])
        with pool.session(snapshot=blob, tools=tools) as session:
            assert session.eval("1").text == "1"
        assert called == []  # no tool is called by restoring
        started = time.monotonic()
        with contextlib.suppress(SnapshotRejected):
            pool.session(snapshot=_blob(text, modules=["@/endless/index.js"])).close()
        assert time.monotonic() - started < _CPU_S + 5.0
        with pool.session() as session:
            assert session.eval("1").text == "1"


def test_random_damage_inside_the_envelope_is_refused_or_harmless(pool: Pool) -> None:
    with pool.session() as session:
        session.eval(
            "const shared = { n: 1 }, p = { shared }, m = new Map([['k', shared]]), d = new Date();"
            " const u = new Uint8Array(new ArrayBuffer(8), 2, 3), r = /a/g, e = new Error('e');"
            " class A { static n = 1; m() {} } class B extends A {} const b = new B(); b.self = b;"
            " const f = (x) => x, c = (() => { let n; return () => n })(), s = Symbol('s'); 0"
        ).unwrap()
        body = open_sealed(session.snapshot())
    generator = random.Random(20260101)
    head, parts = documents.split(body)
    texts = [documents.unstore(part, 1 << 20) for part in parts]
    outcomes = set()
    for _ in range(120):
        at = generator.randrange(len(texts))
        text = bytearray(texts[at])
        for _ in range(generator.randint(1, 3)):
            place = generator.randrange(len(text))
            kind = generator.random()
            if kind < 0.5:
                text[place] = generator.choice(b'[]{}",:0123456789-abcfnoPMvuxy')
            elif kind < 0.8:
                del text[place : place + generator.randint(1, 4)]
            else:
                text[place:place] = generator.choice([b"[]", b"[0],", b"1,", b'"a",', b"null,"])
        damaged = [documents.store(bytes(text) if n == at else one) for n, one in enumerate(texts)]
        try:
            with pool.session(snapshot=seal(documents.join(head, damaged))) as session:
                outcomes.add("restored")
                assert session.eval("1").text == "1"
                session.snapshot()
        except SnapshotRejected:
            outcomes.add("refused")
    assert outcomes == {"restored", "refused"}
