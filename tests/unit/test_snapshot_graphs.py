"""Random graphs of objects, with sharing and cycles, come back equal in structure and identity.

A graph is drawn as data. One program builds it in the guest, another one, made from the same data,
walks what was restored and lists every edge and value that is not what was drawn.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .snapshot_guest import Guest

_SCALARS = [
    "0", "-0", "1.5", "NaN", "-Infinity", "'text'", "'\\ud800'", "''", "true", "null", "undefined",
    "12345678901234567890n", "Symbol.iterator", "Symbol.for('r')", "Math", "Array.prototype.map",
]  # fmt: skip
_KINDS = ["object", "array", "map", "set", "null", "instance", "frozen", "date", "error"]


@dataclass(frozen=True)
class Graph:
    kinds: list[str]
    edges: list[list[tuple[str, int | str]]]  # per node: key, and a node's number or a scalar
    roots: list[int]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, 12))
    kinds = draw(st.lists(st.sampled_from(_KINDS), min_size=size, max_size=size))
    target = st.one_of(st.integers(0, size - 1), st.sampled_from(_SCALARS))
    keys = st.lists(
        st.sampled_from(["a", "b", "0", "3", "__proto__", "é"]), unique=True, max_size=4
    )
    edges = [[(key, draw(target)) for key in draw(keys)] for _ in range(size)]
    roots = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=4))
    return Graph(kinds, edges, roots)


_MAKE = {
    "object": "{}",
    "array": "[]",
    "map": "new Map()",
    "set": "new Set()",
    "null": "Object.create(null)",
    "instance": "new Thing()",
    "frozen": "{}",
    "date": "new Date(5)",
    "error": "new RangeError('e')",
}
_DEFINE = (
    "Object.defineProperty(n[{at}], {key},"
    " {{ value: {value}, writable: true, enumerable: true, configurable: true }});"
)


def _value(target: int | str) -> str:
    return f"n[{target}]" if isinstance(target, int) else target


def _builder(graph: Graph) -> str:
    lines = ["class Thing { hi() { return 'hi' } }", "{ const n = [];"]
    lines += [f"n.push({_MAKE[kind]});" for kind in graph.kinds]
    for at, kind in enumerate(graph.kinds):
        for key, target in graph.edges[at]:
            value = _value(target)
            if kind == "map":
                lines.append(f"n[{at}].set({json.dumps(key)}, {value});")
            elif kind == "set":
                lines.append(f"n[{at}].add({value});")
            else:
                lines.append(_DEFINE.format(at=at, key=json.dumps(key), value=value))
        if kind == "frozen":
            lines.append(f"Object.freeze(n[{at}]);")
    lines += [f"globalThis.root{number} = n[{root}];" for number, root in enumerate(graph.roots)]
    return "\n".join([*lines, "}"])


def _checker(graph: Graph) -> str:
    """A program that walks the restored graph from its roots and lists what is wrong."""
    about: dict[str, Any] = {"kinds": graph.kinds, "roots": graph.roots}
    edges = [
        ", ".join(
            f"[{json.dumps(key)}, {target if isinstance(target, int) else 'null'}, "
            f"{'undefined' if isinstance(target, int) else target}]"
            for key, target in node
        )
        for node in graph.edges
    ]
    listed = ", ".join(f"[{node}]" for node in edges)
    return f"""(() => {{
  const {{ kinds, roots }} = {json.dumps(about)}, edges = [{listed}];
  const found = new Map(), wrong = [], queue = [];
  const meet = (object, at, where) => {{
    if (found.has(at)) {{ if (found.get(at) !== object) wrong.push("identity " + where); return; }}
    for (const [other, known] of found) if (known === object) wrong.push("merged " + other + where);
    found.set(at, object); queue.push(at);
  }};
  const prototypes = {{ object: Object, array: Array, map: Map, set: Set, instance: Thing,
    frozen: Object, date: Date, error: RangeError }};
  roots.forEach((at, i) => meet(globalThis["root" + i], at, "root" + i));
  while (queue.length) {{
    const at = queue.shift(), kind = kinds[at], object = found.get(at);
    const prototype = kind === "null" ? null : prototypes[kind].prototype;
    if (Object.getPrototypeOf(object) !== prototype) wrong.push("prototype " + at);
    if (kind === "array" !== Array.isArray(object)) wrong.push("array " + at);
    if (kind === "frozen" !== Object.isFrozen(object)) wrong.push("frozen " + at);
    if (kind === "instance" && object.hi() !== "hi") wrong.push("method " + at);
    if (kind === "date" && object.getTime() !== 5) wrong.push("time " + at);
    if (kind === "error" && object.message !== "e") wrong.push("message " + at);
    const items = kind === "set" ? [...object] : null;
    const name = ([, to, scalar]) => to === null ? scalar : "n" + to;
    const drawn = new Set(edges[at].map(name));
    if (kind === "set" && drawn.size !== object.size) wrong.push("size " + at);
    const own = kind === "map" ? [...object.keys()] : Object.keys(object);
    if (items === null && own.length !== edges[at].length) wrong.push("keys " + at + own);
    edges[at].forEach(([key, to, scalar], i) => {{
      let value;
      if (kind === "map") value = object.get(key);
      else if (kind === "set") {{
        if (to === null) {{ if (!object.has(scalar)) wrong.push("member " + at); return; }}
        const seen = edges[at].slice(0, i).some(([, other]) => other === to);
        if (seen) return;
        // Members keep their order; equal ones were added once.
        const before = new Set(edges[at].slice(0, i).map(name));
        value = items[before.size];
      }} else value = Object.getOwnPropertyDescriptor(object, key)?.value;
      if (to === null) {{ if (!Object.is(value, scalar)) wrong.push("value " + at + key); }}
      else if (typeof value !== "object" || value === null) wrong.push("edge " + at + key);
      else meet(value, to, at + key);
    }});
  }}
  return wrong;
}})()"""


@given(graphs())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_graphs_come_back_equal_in_structure_and_identity(graph: Graph) -> None:
    guest = Guest()
    guest.text(_builder(graph))
    check = _checker(graph)
    assert guest.text(check) == "[]"  # the check itself holds for what was built
    heir = guest.heir()
    assert heir.text(check) == "[]"
    assert heir.heir().text(check) == "[]"
