"""Programs whose syntax tree is larger than the worker may become: told, and nobody dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qjs_pool import Limits, Pool

_MB = 1_000_000
# What takes the parser the most memory for its size, each in another way.
_SHAPES = {
    "statements": "1;" * (_MB // 2),
    "unclosed brackets": "[" * _MB,
    "nested lists": "[" * (_MB // 2) + "]" * (_MB // 2),
    "one sum": "n+" * (_MB // 2) + "n",
    "small functions": "(()=>1);" * (_MB // 8),
    "a list of objects": "[" + "{a:1,b:2}," * (_MB // 10) + "]",
    "a chain of calls": "n" + "()" * (_MB // 2),
    "a template with many parts": "`" + "x${1}y" * (4 * _MB // 6) + "`",
    "its own wrapping, not its tree": "await 1;" + "1;" * 65_000,
}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    big = {"@/skills/big": {"index.js": _SHAPES["statements"]}}
    with Pool(limits=Limits(memory=1 << 20, cpu=30.0), modules=big) as pool:
        yield pool


@pytest.mark.parametrize("shape", _SHAPES)
def test_a_program_too_large_to_be_read_is_refused_with_its_size_and_the_limit(
    pool: Pool, shape: str
) -> None:
    with pool.session() as session:
        session.eval("var n = 1; var next = (() => { let k = 0; return () => ++k })()")
        result = session.eval(_SHAPES[shape])
        assert result.error is not None
        assert result.error.name == "OutOfMemory"
        assert f"a program of {len(_SHAPES[shape])} bytes" in result.error.message
        assert "the memory limit of 1 MiB" in result.error.message
        assert result.state == "kept"
        # In the same worker, whose parser begins anew.
        assert session.eval("[n, next()]").value == [1, 1]


@pytest.mark.parametrize("lines", [16_000, 17_000, 18_000, 19_000])
def test_a_program_that_is_just_read_is_not_too_large_for_what_is_made_of_it(
    pool: Pool, lines: int
) -> None:
    # Each line is erased in three places, and each of those is found before any is erased.
    with pool.session() as session:
        session.eval("var next = (() => { let k = 0; return () => ++k })(); next()")
        result = session.eval("type T = { a: number; b?: string }\n" * lines + "7")
        assert result.ok or result.error.name == "OutOfMemory"
        assert result.state == "kept"
        assert session.eval("next()").value == 2


def test_a_module_too_large_to_be_read_rejects_its_import(pool: Pool) -> None:
    with pool.session() as session:
        told = session.eval("await import('@/skills/big').catch((error) => error.message)").value
        assert told.startswith("the module '@/skills/big/index.js' of 1000000 characters")
        assert session.eval("1").value == 1


@pytest.mark.parametrize("quote", "'`")
def test_large_texts_in_a_program_take_no_more_memory_than_they_are_long(
    pool: Pool, quote: str
) -> None:
    with pool.session(limits=Limits(memory=1 << 20)) as session:
        assert session.eval(f"{quote}{'x' * 200_000}{quote}.length").value == 200_000


def test_a_large_program_is_held_in_one_tree_at_a_time() -> None:
    # One tree of it takes 45 MB of the 88 MiB that there are, and 24 MiB are to stay free.
    with Pool(limits=Limits(memory=16 << 20, cpu=30.0)) as pool, pool.session() as session:
        assert session.eval(f"[{'1,' * 120_000}].length").value == 120_000
