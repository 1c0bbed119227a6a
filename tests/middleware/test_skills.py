"""Skills: what programs may import, and where it comes from."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")
pytest.importorskip("deepagents")

from deepagents.backends import FilesystemBackend
from deepagents.middleware.skills import SkillsMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from qjs_pool import Pool

FILES = {
    "stats/SKILL.md": """---
name: stats
description: Means and medians.
---
Import it.
""",
    "stats/index.ts": """import { sum } from "./lib/sum";
export const mean = (xs: number[]): number => sum(xs) / xs.length;
export let calls = 0;
""",
    "stats/lib/sum.ts": "export const sum = (xs: number[]) => xs.reduce((a, b) => a + b, 0);",
    "stats/data.csv": "1,2",
    "report/SKILL.md": """---
name: report
description: Uses stats.
---
""",
    "report/index.js": """import { mean } from "@/skills/stats";
export default xs => `mean ${mean(xs)}`;
""",
    "broken/SKILL.md": "---\nname: broken\ndescription: Not UTF-8.\n---\n",
    "empty/SKILL.md": "---\nname: empty\ndescription: No code.\n---\n",
}
NEEDY = """---
name: needy
description: Needs tools.
metadata:
  required-ptc-tools: "search fetch_page"
---
"""


@tool
def search(q: str) -> str:
    """Search."""
    return q


class Counting(FilesystemBackend):
    """A backend that notes what is downloaded."""

    def __init__(self, root: Path) -> None:
        super().__init__(root_dir=str(root), virtual_mode=True)
        self.downloads: list[str] = []

    def download_files(self, paths: list[str]) -> Any:
        self.downloads += [path for path in paths if not path.endswith("SKILL.md")]
        return super().download_files(paths)


@pytest.fixture
def backend(tmp_path: Path) -> Counting:
    for name, text in FILES.items():
        path = tmp_path / "skills" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "skills/broken/index.ts").write_bytes(b"export const x = '\xff';")
    return Counting(tmp_path)


def deep(scripted: Any, script: Any, backend: Any, **options: Any) -> Any:
    asked = options.pop("asked", None)
    return scripted.agent(
        script,
        scripted.middleware(skills_backend=backend, **options),
        tools=[search],
        kind="deep",
        backend=backend,
        skills=["/skills/"],
        checkpointer=InMemorySaver(),
        asked=asked,
    )


@pytest.fixture(scope="module")
def module_loader() -> None:
    """Skip where the worker imports no modules at all: that is tested elsewhere."""
    modules = {"@/skills/probe": {"index.ts": "export const one: number = 1;"}}
    with Pool(modules=modules) as pool, pool.session() as session:
        if not session.eval('(await import("@/skills/probe")).one').ok:
            pytest.skip("this worker has no module loader")


THREAD = {"configurable": {"thread_id": "a"}}


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_programs_import_skills_that_are_downloaded_once_per_thread(
    scripted: Any, ask: Any, backend: Counting, how: str, module_loader: None
) -> None:
    script = [
        *scripted.turn(
            'const { mean } = await import("@/skills/stats"); mean([1, 2, 6])',
            'import report from "@/skills/report"; report([2, 4])',
        ),
        *scripted.turn('(await import("@/skills/stats/lib/sum.ts")).sum([1, 2])'),
    ]
    asked: list[Any] = []
    agent = deep(scripted, script, backend, asked=asked)

    def turn() -> Any:
        if how == "invoke":
            return agent.invoke(ask(), THREAD)
        return asyncio.run(agent.ainvoke(ask(), THREAD))

    turn()
    assert scripted.texts(turn()) == [
        "<result>3</result>",
        "<result>mean 3</result>",
        "<result>3</result>",
    ]
    assert sorted(backend.downloads) == [
        "/skills/report/index.js",
        "/skills/stats/index.ts",
        "/skills/stats/lib/sum.ts",
    ]
    assert "`@/skills/stats`" in str(asked[0][0].content)


def test_the_sources_of_what_a_program_names_and_of_what_that_names_are_fetched_once(
    scripted: Any, backend: Counting
) -> None:
    evaluator = scripted.middleware(skills_backend=lambda runtime: backend)._evaluator
    thread = evaluator.registry.of(("k",))
    skills = [{"name": name, "path": f"/skills/{name}/SKILL.md"} for name in ("stats", "report")]
    runtime = type("Runtime", (), {"state": {"skills_metadata": skills}})()
    evaluator.skills.load(thread, "await import('@/skills/report')", runtime)
    assert thread.modules == {
        "@/skills/report": {"index.js": FILES["report/index.js"]},
        "@/skills/stats": {
            "index.ts": FILES["stats/index.ts"],
            "lib/sum.ts": FILES["stats/lib/sum.ts"],
        },
    }
    evaluator.skills.load(thread, "await import('@/skills/stats')", runtime)
    assert len(backend.downloads) == 3


def test_skills_work_in_mode_call(
    scripted: Any, ask: Any, backend: Counting, module_loader: None
) -> None:
    program = '(await import("@/skills/stats")).mean([3])'
    agent = deep(scripted, scripted.turn(program, program), backend, mode="call")
    assert scripted.texts(agent.invoke(ask(), THREAD)) == ["<result>3</result>"] * 2
    assert len(backend.downloads) == 2


def test_what_cannot_be_imported_says_so_in_the_program_and_in_the_log(
    scripted: Any, ask: Any, backend: Counting, caplog: Any
) -> None:
    programs = [
        f'try {{ await import("@/skills/{name}") }} catch (e) {{ e.message }}'
        for name in ("nosuch", "broken", "empty", "../../etc/passwd")
    ]
    agent = deep(scripted, scripted.turn(*programs), backend)
    with caplog.at_level(logging.WARNING, "qjs_pool.middleware"):
        texts = scripted.texts(agent.invoke(ask(), THREAD))
    assert all("@/skills/" in text for text in texts)
    assert not any(text.startswith("<error") for text in texts)
    assert "/skills/broken/index.ts of skill 'broken' is not UTF-8" in caplog.text
    assert "skill 'empty' has no .ts or .js files" in caplog.text


@pytest.fixture
def needy(backend: Counting, tmp_path: Path) -> Counting:
    """The backend with one more skill, which requires the tools search and fetch_page."""
    (tmp_path / "skills/needy").mkdir()
    (tmp_path / "skills/needy/SKILL.md").write_text(NEEDY)
    (tmp_path / "skills/needy/index.ts").write_text("export const one = 1;")
    return backend


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_a_skill_that_needs_tools_which_are_not_exposed_is_an_error_before_the_agent(
    scripted: Any, ask: Any, needy: Counting, how: str
) -> None:
    agent = scripted.agent(
        scripted.turn(),
        SkillsMiddleware(backend=needy, sources=["/skills/"]),
        scripted.middleware(skills_backend=needy, ptc=["search"]),
        tools=[search],
    )
    run = agent.invoke if how == "invoke" else lambda said: asyncio.run(agent.ainvoke(said))
    with pytest.raises(ValueError, match=r"'needy' requires the tools fetch_page .*ptc=\["):
        run(ask())


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_where_skills_are_loaded_behind_ours_such_a_skill_is_a_warning_and_no_module(
    scripted: Any, ask: Any, needy: Counting, caplog: Any, how: str
) -> None:
    program = 'try { (await import("@/skills/needy")).one } catch (e) { "no " + e.message }'
    agent = deep(scripted, scripted.turn(program), needy, ptc=["search"])
    with caplog.at_level(logging.WARNING, "qjs_pool.middleware"):
        if how == "invoke":
            state = agent.invoke(ask(), THREAD)
        else:
            state = asyncio.run(agent.ainvoke(ask(), THREAD))
    (text,) = scripted.texts(state)
    assert text.startswith("<result>no ")
    assert "requires the tools fetch_page" in caplog.text
    assert needy.downloads == []


def test_such_a_skill_is_importable_where_a_glob_exposes_its_tools(
    scripted: Any, ask: Any, needy: Counting, module_loader: None
) -> None:
    program = '(await import("@/skills/needy")).one'
    agent = deep(scripted, scripted.turn(program), needy, ptc=["search", "fetch_*"])
    assert scripted.texts(agent.invoke(ask(), THREAD)) == ["<result>1</result>"]


def test_a_skill_that_appears_later_and_lacks_tools_is_not_installed(
    scripted: Any, ask: Any, backend: Counting, caplog: Any
) -> None:
    skill = {
        "name": "late",
        "path": "/skills/stats/SKILL.md",
        "metadata": {"required-ptc-tools": "['fetch_page']"},
    }
    middleware = scripted.middleware(skills_backend=backend)
    evaluator = middleware._evaluator
    thread = evaluator.registry.of(("k",))
    runtime = type("Runtime", (), {"state": {"skills_metadata": [skill]}})()
    with caplog.at_level(logging.WARNING, "qjs_pool.middleware"):
        evaluator.skills.load(thread, 'import "@/skills/late"', runtime)
    assert thread.modules == {}
    assert "skill 'late' is not importable: it requires the tools fetch_page" in caplog.text


def test_what_a_skill_exports_is_restored_by_its_import_in_a_later_turn(
    scripted: Any, ask: Any, backend: Counting
) -> None:
    saver = InMemorySaver()

    def turn(program: str) -> str:
        agent = scripted.agent(
            scripted.turn(program),
            SkillsMiddleware(backend=backend, sources=["/skills/"]),
            scripted.middleware(skills_backend=backend),
            checkpointer=saver,
        )
        state = agent.invoke(ask(), {"configurable": {"thread_id": "t"}})
        return str(scripted.texts(state)[-1])

    turn('import { mean } from "@/skills/stats"; var average = mean')
    assert turn("average([1, 2, 6])") == "<result>3</result>"
