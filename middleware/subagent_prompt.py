"""What the model is told about subagents in the REPL: the call, the pattern, the kinds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from .signatures import inline

_MAX_DESCRIPTION: Final = 200

_SECTION: Final = """\
### Subagents inside the REPL

Programs start subagents with the global `task`, which gives the subagent's answer:

```ts
task(input: {
  /** All that the subagent is told: the work, where to look, and what to answer. */
  description: string;
  subagentType: %(types)s;
  /** A few words for whoever watches. */
  label?: string;
  /** A JSON Schema of type "object": the answer is then such a value instead of text. */
  responseSchema?: object;
}): Promise<any>
```

For work of many parts fan out, collect, reduce: one task for each part, all at the same time,
then combine the answers in the program and return only what you need.

```js
const answers = await Promise.all(parts.map((part) => task({
  description: `Look for ... in ${part}. Answer with ...`,
  subagentType: %(first)s,
  responseSchema: {
    type: "object", properties: { hits: { type: "array", items: { type: "string" } } },
    required: ["hits"],
  },
})));
answers.flatMap((answer) => answer.hits)
```

- A subagent works until it has an answer, with tools and a context of its own, and cannot be
  asked again. Say where its input is rather than paste it.
- Up to %(concurrency)d run at once, the others wait. One that fails rejects its promise: with
  `Promise.allSettled` the others' answers are kept.
- A program needs no subagent for what it can do itself: use one for work that takes a model.
%(listed)s"""


def subagents_section(subagents: Mapping[str, str], concurrency: int) -> str:
    """The part of the system prompt that is about `task`.

    Args:
        subagents: their descriptions by name; empty if they are not known.
        concurrency: how many run at once.
    """
    names = [json.dumps(name, ensure_ascii=False) for name in subagents]
    listed = [
        f"  - {name}: {inline(said, _MAX_DESCRIPTION)}".removesuffix(": ")
        for name, said in subagents.items()
    ]
    return _SECTION % {
        "types": " | ".join(names) or "string",
        "first": names[0] if names else '"..."',
        "concurrency": concurrency,
        "listed": "\n".join(["- The subagents:", *listed])
        if listed
        else "- The values of `subagentType` are those of the `task` tool.",
    }
