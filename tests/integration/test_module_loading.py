"""What goes wrong with modules, what a hostile program does to them, how sessions keep them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import _quickjs
import pytest

from qjs_pool import AsyncPool, EvalResult, Limits, Pool, Session
from qjs_pool.drive import drive

Run = Callable[..., EvalResult]
_LOG = "(globalThis.log ??= []).push"


def _error(result: EvalResult) -> tuple[str, str]:
    assert result.error is not None, result.text
    return result.error.name, result.error.message


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("await import('@/n')", "'@/n' imported from eval: installed: @/m"),
        ("import x from 'fs'", "'fs' imported from eval: installed: @/m"),
        ("import('node:fs')", "'node:fs' imported from eval: installed: @/m"),
        ("import('')", "'' imported from eval: installed: @/m"),
        ("import('/etc/passwd')", "'/etc/passwd' imported from eval: installed: @/m"),
        ("import('https://x.org/y.js')", "'https://x.org/y.js' imported from eval: installed: @/m"),
        ("import('__proto__')", "'__proto__' imported from eval: installed: @/m"),
        ("import('@/m/constructor')", "'@/m/constructor' imported from eval: no such file in @/m, "
         "installed: deep/a.js, user.js, utils.js"),
        ("import('@/m/util.js')", "'@/m/util.js' imported from eval: no such file in @/m, "
         "did you mean 'utils.js'? installed: deep/a.js, user.js, utils.js"),
        ("import('@/m')", "'@/m' imported from eval: no such file in @/m, installed: deep/a.js, "
         "user.js, utils.js"),
        ("import('./utils.js')", "'./utils.js' imported from eval: a program has no folder, so "
         "name the module from '@/' on"),
        ("import '@/m/user'", "'./utlis.js' imported from @/m/user.js: no such file in @/m, "
         "did you mean 'utils.js'? installed: deep/a.js, user.js, utils.js"),
        ("import '@/m/deep/a'", "'../../other/x.js' imported from @/m/deep/a.js: it leads out "
         "of @/m"),
        ("import('@/m/../other/x')", "'@/m/../other/x' imported from eval: it leads out of @/m"),
    ],
)  # fmt: skip
def test_a_module_that_is_not_there_is_named_with_who_wants_it(
    run: Run, program: str, message: str
) -> None:
    files = {
        "user.js": "import { x } from './utlis.js'",
        "deep/a.js": "import '../../other/x.js'",
        "utils.js": "",
    }
    result = run(files, program)
    assert _error(result) == ("Error", f"cannot find module {message}")


def test_a_name_without_end_is_refused_at_once_and_shown_in_part(run: Run) -> None:
    for program in ["import('@/m' + '/a'.repeat(500000))", "import('x'.repeat(1000000))"]:
        result = run({"index.js": ""}, program)
        name, message = _error(result)
        assert (name, len(message) < 400) == ("Error", True)
        assert result.usage.cpu_s < 1.0


def test_a_session_without_modules_says_so(session: Session) -> None:
    assert _error(session.eval("import { x } from '@/skills/a'")) == (
        "Error",
        "cannot find module '@/skills/a' imported from eval: nothing is installed",
    )


def test_a_missing_module_can_be_caught_and_tried_around(run: Run) -> None:
    program = """
        let m;
        try { m = await import('@/nope') } catch (e) { m = await import('@/m') }
        m.default
    """
    assert run({"index.js": "export default 3"}, program).value == 3
    # What a failing graph had of good modules does no harm.
    files = {"index.js": "import './ok.js'; import './gone.js'", "ok.js": "export default 4"}
    assert run(files, "import('@/m')", "(await import('@/m/ok')).default").value == 4


def test_a_missing_export_is_named_with_what_there_is(run: Run) -> None:
    files = {"index.js": "export const parse = 1; export default 2", "none.js": "1",
             "user.js": "import { prase } from './index.js'",
             "again.js": "export { prase } from './index.js'"}  # fmt: skip
    there = "it exports default, parse"
    for program, importer in [
        ("import { prase } from '@/m'", ""),
        ("import '@/m/user'", " (imported by @/m/user.js)"),
        ("import '@/m/again'", " (imported by @/m/again.js)"),
    ]:
        assert _error(run(files, program)) == (
            "SyntaxError",
            f"module '@/m/index.js' has no export named 'prase'{importer}; {there}",
        )
    assert _error(run(files, "import d from '@/m/none'")) == (
        "SyntaxError",
        "module '@/m/none.js' has no export named 'default'; it exports nothing",
    )
    # As anywhere, import() gives what there is.
    assert run(files, "const { prase } = await import('@/m'); typeof prase").value == "undefined"


@pytest.mark.parametrize(
    ("source", "line", "shown"),
    [
        (
            "export const a = 1;\nexport const b = [1,;\nexport const c = 2",
            2,
            "export const b = [1,;",
        ),
        ("import { x } from './other.js'\n\nlet a = 1; let a = 2", 3, "let a = 1; let a = 2"),
        ("import { x } from './other.js'\nconst x = 1", 2, "const x = 1"),
        ("await 1\nexport default {\n  a: 1,\n  b: c d\n}", 4, "b: c d"),
        ("const a: number = 1\nexport const b: = 2", 2, "export const b: = 2"),
        ("export const x = 1\nexport { x }", 2, "export { x }"),
        ("const x = 1\nexport { y as x }", 2, "export { y as x }"),
        ("'\\07'", 1, "'\\07'"),
        ("with (x) {}", 1, "with (x) {}"),
    ],
)
def test_a_syntax_error_names_module_line_and_text(
    run: Run, source: str, line: int, shown: str
) -> None:
    result = run({"index.js": "import './broken.js'", "broken.js": source, "other.js": ""},
                 "import '@/m'")  # fmt: skip
    name, message = _error(result)
    assert name == "SyntaxError"
    first, second = message.split("\n")
    assert f"(@/m/broken.js:{line}:" in first
    assert second == f"    {shown}"


@pytest.mark.parametrize(
    "source",
    [
        "}); globalThis.ran = 1; (async function () {",
        "}}}); globalThis.ran = 1; (function () { with ({}) { return function* () {",
        "]; globalThis.ran = 1; [",
        "return } globalThis.ran = 1; {",
    ],
)
def test_a_module_that_closes_the_function_around_it_does_not_run(run: Run, source: str) -> None:
    result = run({"index.js": source}, "import('@/m')")
    assert _error(result)[0] == "SyntaxError"
    assert "(@/m/index.js:1:" in _error(result)[1]
    program = "const e = await import('@/m').catch((e) => e); [e.name, typeof ran]"
    assert run({"index.js": source}, program).value == ["SyntaxError", "undefined"]


@pytest.mark.skipif(_quickjs.Context().eval("![].at"), reason="this engine reports no columns")
def test_a_syntax_error_on_the_first_line_has_its_column(run: Run) -> None:
    message = _error(run({"index.js": "const a = 1; const b = [1,;"}, "import('@/m')"))[1]
    assert "(@/m/index.js:1:27)" in message


def test_a_broken_json_file_is_a_syntax_error_with_its_name(run: Run) -> None:
    name, message = _error(run({"x.json": "{'a': 1}"}, "import x from '@/m/x.json'"))
    assert name == "SyntaxError"
    assert "@/m/x.json" in message


def test_a_module_that_throws_is_remembered_and_throws_the_same_again(run: Run) -> None:
    files = {
        "index.js": "import './thrower.js'; export default 1",
        "thrower.js": f"{_LOG}('ran');\n  throw new RangeError('boom')",
        "late.js": f"await null; {_LOG}('late ran'); throw new TypeError('late')",
        "over.js": "import './late.js'",
    }
    program = """
        const caught = [];
        for (const name of ['@/m', '@/m/thrower', '@/m', '@/m/over', '@/m/late', '@/m/over']) {
          await import(name).catch((e) => caught.push(e));
        }
        [caught.map(String), new Set(caught).size, log]
    """
    assert run(files, program).value == [
        ["RangeError: boom"] * 3 + ["TypeError: late"] * 3, 2, ["ran", "late ran"],
    ]  # fmt: skip
    result = run(files, "import '@/m'")
    assert result.error is not None
    assert result.error.stack.strip().startswith("at <anonymous> (@/m/thrower.js:2")
    assert len(result.error.stack.strip().splitlines()) == 1


def test_frames_name_the_module_and_the_line_they_are_in(run: Run) -> None:
    files = {
        "index.ts": "import { inner } from './inner';\ntype T = 1;\nexport function outer() {\n"
        "  return inner();\n}",
        "inner.js": "\nexport function inner() {\n  throw new Error('deep')\n}",
    }
    result = run(files, "import { outer } from '@/m';\n\n[1].map(() => outer())")
    assert result.error is not None
    frames = [frame.strip() for frame in result.error.stack.splitlines()]
    assert frames[0].startswith("at inner (@/m/inner.js:3")
    assert frames[1].startswith("at outer (@/m/index.ts:4")
    assert frames[3] == "at map (native)"
    assert "prelude" not in result.error.stack
    assert "<input>" not in result.error.stack


# --- robustness -----------------------------------------------------------------------------------


def test_polluted_prototypes_neither_break_an_import_nor_see_it(run: Run) -> None:
    files = {
        "index.ts": "import { sum } from './sum'; export default sum([1, 2]);export * from './sum'",
        "sum.ts": "export const sum = (xs: number[]) => xs.reduce((a, b) => a + b); await null;"
        "export { sum as __proto__, sum as constructor, sum as then_ }",
        "user.js": "import { __proto__ as p, constructor } from './sum.ts';"
        "export const same = p === constructor",
    }
    polluted = """
        let seen = '';
        const spy = (name) => function () { seen += name + ' '; throw new Error(name) };
        const keys = ['then', 'get', 'set', 'value', '0', 'deps', 'json', 'toJSON', 'run'];
        for (const key of keys) {
          const descriptor = { __proto__: null, get: spy(key), set: spy(key), configurable: true };
          Object.defineProperty(Object.prototype, key, descriptor);
        }
        for (const key of ['push', 'map', 'join', 'sort']) Array.prototype[key] = spy(key);
        Promise.prototype.then = spy('then'); Promise.prototype.catch = spy('catch');
        Map.prototype.get = spy('Map.get'); Set.prototype.add = spy('Set.add');
        Function.prototype.call = spy('call'); Function.prototype.apply = spy('apply');
        Object.getPrototypeOf(function* () {}).prototype.next = spy('next');
        Array.prototype[Symbol.iterator] = spy('iterator');
        String.prototype.concat = spy('concat');
        Object.defineProperty = spy('defineProperty'); JSON.parse = spy('parse');
        Reflect.apply = spy('apply');
        globalThis.eval = spy('eval'); Symbol.prototype.toString = spy('sym');
        import { same } from '@/m/user';
        const m = await import('@/m');
        for (let i = 0; i < keys.length; i++) delete Object.prototype[keys[i]];
        ({ seen, sum: m.sum === m.constructor, same, keys: Object.keys(m) })
    """
    # reduce is left alone: the module itself calls it, as it would call anything of the guest's.
    result = run(files, polluted)
    assert result.error is None, result.error
    assert result.value == {
        "seen": "", "sum": True, "same": True,
        "keys": ["__proto__", "constructor", "default", "sum", "then_"],
    }  # fmt: skip


def test_the_loader_leaves_no_trace_among_the_globals(run: Run) -> None:
    program = """
        await import('@/m');
        const own = Object.getOwnPropertyDescriptor(globalThis, '$qjs_import');
        [Object.keys(globalThis), own.writable, own.enumerable, own.configurable]
    """
    assert run({"index.js": "const local = 1"}, program).value == [["own"], False, False, False]


def test_names_that_objects_inherit_are_names_like_others(pool: Pool) -> None:
    files = {
        "__proto__.js": "export const toString = 'ts', hasOwnProperty = 'own'; export default 'p'",
        "constructor.ts": "import d, { toString, hasOwnProperty } from './__proto__';"
        "export default [d, toString, hasOwnProperty]",
    }
    with pool.session(modules={"@/__proto__": files, "@/constructor": {}}) as session:
        result = session.eval("(await import('@/__proto__/constructor')).default")
        assert result.value == ["p", "ts", "own"]
        message = _error(session.eval("await import('@/constructor')"))[1]
        assert message.endswith("no such file in @/constructor, nothing is installed")


def test_a_chain_of_two_hundred_modules_and_one_of_two_thousand(pool: Pool) -> None:
    def chain(length: int, last: str) -> dict[str, str]:
        files = {
            f"m{i}.js": f"import {{ n as below }} from './m{i + 1}.js'; export const n = below + 1"
            for i in range(length)
        }
        return {**files, f"m{length}.js": last}

    with pool.session(modules={"@/c": chain(200, "export const n = 0")}) as session:
        assert session.eval("(await import('@/c/m0')).n").value == 200
    waiting = chain(2000, "export const n = await Promise.resolve(0)")
    roomy = Limits(cpu=30.0, wall=60.0)
    with Pool(modules={"@/c": waiting}, limits=roomy) as own, own.session() as session:
        assert session.eval("(await import('@/c/m0')).n").value == 2000


def test_a_wide_diamond_runs_its_base_once(run: Run) -> None:
    files = {f"m{i}.js": "import { base } from './base.js'; export default base" for i in range(50)}
    files["base.js"] = "export const base = {}; globalThis.times = (globalThis.times ?? 0) + 1"
    files["index.js"] = "".join(f"import m{i} from './m{i}.js';" for i in range(50)) + (
        "export default new Set([" + ",".join(f"m{i}" for i in range(50)) + "]).size"
    )
    assert run(files, "import one from '@/m'; [one, times]").value == [1, 1]


def test_a_module_that_never_ends_is_a_timeout_and_can_be_tried_again(pool: Pool) -> None:
    files = {
        "loop.js": "export const n = 1; if (globalThis.spin) for (;;);",
        "index.js": "import { n } from './loop.js'; export default n",
        "wait.js": "if (globalThis.spin) await new Promise(() => {}); export default 2",
    }
    with pool.session(modules={"@/m": files}) as session:
        session.eval("globalThis.spin = true")
        result = session.eval("import '@/m'", timeout=0.3)
        assert _error(result)[0] == "Timeout"
        assert result.state == "kept"
        assert _error(session.eval("import '@/m/wait'"))[0] == "Deadlock"
        session.eval("globalThis.spin = false")
        assert session.eval(
            "import one from '@/m'; import two from '@/m/wait'; [one, two]"
        ).value == [1, 2]


def test_a_module_that_outgrows_the_memory_takes_nothing_with_it(pool: Pool) -> None:
    files = {
        "index.js": "const l = []; for (;;) l.push(new ArrayBuffer(1 << 20))",
        "b.js": "export default 1",
    }
    with pool.session(modules={"@/m": files}) as session:
        session.eval("const kept = 1; await import('@/m/b')")
        assert _error(session.eval("import '@/m'"))[0] == "OutOfMemory"
        assert session.eval("kept + (await import('@/m/b')).default").value == 2


def test_an_import_in_the_middle_of_other_waits(run: Run) -> None:
    program = """
        const order = [];
        await Promise.all([
          new Promise((r) => setTimeout(r, 5)).then(() => order.push('timer')),
          import('@/m').then((m) => order.push(m.default)),
          (async () => { for (let i = 0; i < 3; i++) await null; order.push('jobs') })(),
        ]);
        order
    """
    assert run({"index.js": "export default 'module'"}, program).value == [
        "jobs",
        "module",
        "timer",
    ]


def test_an_import_that_nobody_waited_for_is_there_in_the_next_eval(run: Run) -> None:
    files = {"index.js": "export const v = await new Promise((r) => setTimeout(r, 1, 7))"}
    first = "let v; import('@/m').then((m) => { v = m.v }); 'not waiting'"
    assert run(files, first, "await import('@/m'); v").value == 7


# --- sessions -------------------------------------------------------------------------------------


def test_two_sessions_import_at_once_and_share_nothing(
    pool: Pool, start: Callable[[Callable[[], Any]], Future[Any]]
) -> None:
    files = {"index.ts": "export let n: number = 0; export const bump = () => ++n"}
    program = "const { bump } = await import('@/m'); bump(); bump()"
    with pool.session(modules={"@/m": files}) as one, pool.session(modules={"@/m": files}) as two:
        results = [start(lambda s=s: s.eval(program)) for s in (one, two)]  # type: ignore[misc]
        assert [result.result().value for result in results] == [2, 2]
        one.eval("bump()")
        assert one.eval("(await import('@/m')).n").value == 3
        assert two.eval("(await import('@/m')).n").value == 2


def test_a_pools_modules_and_a_sessions_own_ones() -> None:
    with Pool(modules={"@/a": {"index.js": "export default 'pool'"}}) as pool:
        own = {"@/b": {"index.js": "export { default } from '@/a'"}}
        with pool.session(modules=own) as session, pool.session() as other:
            assert session.eval("import b from '@/b'; b").value == "pool"
            assert other.eval("import a from '@/a'; a").value == "pool"
            assert "installed: @/a" in _error(other.eval("import b from '@/b'"))[1]


def test_a_crash_rolls_modules_back_with_the_state(pool: Pool) -> None:
    files = {
        "index.js": "export let n = 0; export const bump = () => ++n",
        "b.js": "export default 1",
    }
    with pool.session(modules={"@/m": files}) as session:
        session.eval("import { bump } from '@/m'; bump()")
        os.kill(session.pid, signal.SIGKILL)
        assert session.eval("bump(); (await import('@/m')).n").value == 2
        assert session.eval("(await import('@/m/b')).default").value == 1


def test_a_copy_of_a_session_has_its_own_module_state(pool: Pool) -> None:
    files = {
        "index.js": "export let n = 0; export const bump = () => ++n",
        "b.js": "export default 1",
    }
    with pool.session(modules={"@/m": files}) as session:
        session.eval("import { bump } from '@/m'; bump()")
        with session.fork() as copy:
            copy.eval("bump()")
            assert copy.eval("(await import('@/m')).n").value == 2
            assert copy.eval("(await import('@/m/b')).default").value == 1
        assert session.eval("(await import('@/m')).n").value == 1


def test_a_reset_session_evaluates_modules_anew(pool: Pool) -> None:
    files = {"index.js": "export let n = 0; export const bump = () => ++n"}
    with pool.session(modules={"@/m": files}) as session:
        session.eval("import { bump } from '@/m'; bump()")
        session.reset()
        assert session.eval("(await import('@/m')).n").value == 0


def _install(session: Session, modules: dict[str, dict[str, str]]) -> None:
    """What the middleware does when an agent's program names a skill for the first time."""
    core = session._core
    drive(core, lambda: core.configure(core.relay.toolbox, core.options.tools, modules))


def test_modules_installed_later_can_be_imported_and_loaded_ones_stay(pool: Pool) -> None:
    first = {"@/a": {"index.js": "export const v = 'old'", "broken.js": "let let = 1"}}
    with pool.session(modules=first) as session:
        session.eval("import * as a from '@/a'")
        assert _error(session.eval("import '@/a/broken'"))[0] == "SyntaxError"
        later = {
            "@/a": {"index.js": "export const v = 'new'", "broken.js": "export default 'mended'"},
            "@/b": {"index.js": "export { v } from '@/a'"},
        }
        _install(session, later)
        program = "import { v } from '@/b'; [v, a.v, (await import('@/a')) === a]"
        assert session.eval(program).value == ["old", "old", True]
        assert session.eval("(await import('@/a/broken')).default").value == "mended"
        _install(session, {"@/b": later["@/b"]})
        assert session.eval("a.v").value == "old"
        assert "cannot find module '@/a'" in _error(session.eval("import '@/a'"))[1]


async def _async_import() -> object:
    modules = {"@/m": {"index.ts": "export const n: number = 4"}}
    async with AsyncPool(modules=modules) as pool, pool.session() as session:
        return (await session.eval("import { n } from '@/m'; n")).value


def test_an_async_session_imports_too() -> None:
    assert asyncio.run(_async_import()) == 4
