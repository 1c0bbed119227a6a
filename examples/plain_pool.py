"""Several conversations at once, each with a state of its own, from several threads.

python examples/plain_pool.py
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from qjs_pool import Limits, Pool

# What a model might write, turn by turn. The last one goes wrong on purpose.
TURNS = (
    "const seen = new Map<string, number>(); const words: string[] = topic.split(' ');",
    "for (const word of words) seen.set(word, (seen.get(word) ?? 0) + 1); seen",
    "seen.clear(); const hoard = []; for (;;) hoard.push(new ArrayBuffer(1 << 20))",
    "seen.size",
)
TOPICS = ("one fish two fish red fish", "row row row your boat", "never say never again")


def converse(pool: Pool, topic: str) -> list[str]:
    """One conversation: what each turn gave."""
    with pool.session() as session:
        session.set("topic", topic)
        answers = []
        for code in TURNS:
            result = session.eval(code)
            # Whatever the program did comes back as data; nothing is raised.
            answers.append(result.text if result.ok else f"{result.error}")
        return answers


def main() -> None:
    """Run all conversations and print them."""
    with (
        Pool(limits=Limits(memory=32 << 20, cpu=0.5, wall=10.0), min_idle=2) as pool,
        ThreadPoolExecutor() as threads,
    ):
        for topic, answers in zip(
            TOPICS, threads.map(lambda topic: converse(pool, topic), TOPICS), strict=True
        ):
            print(topic)
            for answer in answers:
                print(f"    {answer}")


if __name__ == "__main__":
    main()
