"""What a target group is made of: its target and drafters, and what each rank takes of its node."""

from dataclasses import dataclass

from drafters.config import DrafterConfig
from models.config import TargetConfig


@dataclass(frozen=True)
class Share:
    """What each rank takes of the node that it runs on, in Ray's account."""

    gpus: float = 0.0
    cpus: float = 0.0

    @property
    def bundle(self) -> dict[str, float]:
        """As Ray takes it; a rank that takes nothing stands for a hundredth of a core, since Ray
        refuses a bundle of nothing."""
        taken = {"GPU": self.gpus, "CPU": self.cpus}
        return {kind: amount for kind, amount in taken.items() if amount} or {"CPU": 0.01}


def usual_share(target: TargetConfig) -> Share:
    """A whole GPU for a rank on CUDA; on the CPU ranks share the cores as they come."""
    return Share(gpus=float(target.device.startswith("cuda")))


@dataclass(frozen=True)
class GroupSetup:
    """What every rank of a group is told."""

    target: TargetConfig
    drafter: DrafterConfig
    methods: tuple[str, ...]
    """Decoding methods whose drafters are loaded."""
    max_batch: int
    """Most streamed requests that share a forward."""
    share: Share
    max_cache_tokens: int | None = None
    """Tokens of their prefix cache; by default what there is room for once the target is loaded."""

    @property
    def named(self) -> str:
        """The choice that decides where the ranks fit."""
        return f"target.tp {self.target.tp} on target.device {self.target.device!r}"
