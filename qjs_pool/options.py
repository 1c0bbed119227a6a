"""What one session is opened with."""

from __future__ import annotations

import dataclasses
import hashlib

from .limits import Limits
from .wire import messages as wire


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Options of a session, sent to each worker that comes to serve it."""

    limits: Limits
    durable: bool
    clock: wire.Clock
    seed: str
    tools: tuple[wire.Tool, ...] = ()
    modules: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def reseeded(self, purpose: str) -> SessionOptions:
        """The same options with another seed, derived, so that a given `seed=` is reproducible."""
        seed = hashlib.sha256(
            f"{self.seed} {purpose}".encode("utf-8", "surrogatepass")
        ).hexdigest()[:32]
        return dataclasses.replace(self, seed=seed)

    def message(self, request_id: int, *, reseed: bool) -> wire.Open:
        """The Open message that carries them; without `reseed` random numbers just go on."""
        limits = self.limits
        return wire.Open(
            request_id=request_id,
            memory_bytes=limits.memory,
            stack_bytes=limits.stack,
            result_chars=limits.result_chars,
            console_chars=limits.console_chars,
            value_bytes=limits.value_bytes,
            value_nodes=limits.value_nodes,
            durable=self.durable,
            clock=self.clock,
            seed=self.seed if reseed else "",
            tools=list(self.tools),
            modules=self.modules,
        )

    @property
    def max_frame_bytes(self) -> int:
        """The largest frame that a worker with these limits has a reason to send."""
        limits = self.limits
        texts = 4 * (limits.result_chars + limits.console_chars)
        return 2 * limits.value_bytes + texts + (5 << 20)
