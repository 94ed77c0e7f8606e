"""Which target runs a network: with a prefix cache or without, its forwards plain or in buckets."""

from models.bucketed_target import BucketedTarget
from models.config import Forwards
from models.full_target import FullTarget
from models.ranks import Ranks
from models.target import Target
from models.transformer import Transformer

AnyTarget = Target | BucketedTarget | FullTarget


def open_target(
    model: Transformer, ranks: Ranks | None = None, forwards: Forwards = "auto"
) -> AnyTarget:
    """The target of a network, or of one rank's share of it, with caches for its own heads.

    Raises ``ValueError`` for forwards that the network or its device does not have.
    """
    kind, device = model.spec.topology, model.norm.weight.device.type
    if kind == "bidirectional":
        if forwards not in ("auto", "plain"):
            raise ValueError(
                f"target.forwards {forwards!r}: a bidirectional target has no prefix to keep in a "
                "pool; valid: auto, plain"
            )
        return FullTarget(model)
    if forwards == "graphs" and device != "cuda":
        raise ValueError(
            f"target.forwards 'graphs': device {device} captures none; valid: auto, plain, buckets"
        )
    heads = model.spec.num_kv_heads // (ranks.size if ranks else 1)
    if forwards == "auto":
        forwards = "graphs" if device == "cuda" else "plain"
    if forwards == "plain":
        return Target(model, heads)
    return BucketedTarget(model, heads, captures=forwards == "graphs")


def caching(target: AnyTarget) -> Target:
    """A target that has a prefix cache; only such ones are asked what needs one."""
    assert not isinstance(target, FullTarget), "a bidirectional target has no prefix cache"
    return target
