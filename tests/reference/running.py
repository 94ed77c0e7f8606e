"""What the decoding tests share: prompts, tiny drafters, and one call that decodes a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Literal

import torch

from decoders.draft_graph import DraftGraph, GraphFile
from decoders.loop import Decoder, Observer, decode
from decoders.options import DecodeOptions
from decoders.proposers.base import Proposer
from decoders.proposers.chain import ChainProposer
from decoders.proposers.graph import GraphProposer
from decoders.proposers.oracle import OracleProposer, open_oracles
from decoders.proposers.order import OrderProposer
from decoders.proposers.sets import SetsProposer
from decoders.proposers.wtree import WideTreeProposer
from decoders.request import Request, Result
from decoders.trace import TraceRecorder
from drafters.order_model import OrderModel, OrderModelConfig, build_order_model
from drafters.sets_model import SetsModel, SetsModelConfig
from models.opening import AnyTarget
from models.target import Target
from models.transformer import Transformer

FIRST_TEXT_ID = 4
"""In the tiny targets ids below are the pad, the stop ids and the mask."""


def prompt_of(length: int, salt: int = 0, vocab_size: int = 24) -> tuple[int, ...]:
    """Text tokens that look random and are always the same."""
    text = vocab_size - FIRST_TEXT_ID
    return tuple(FIRST_TEXT_ID + (i * i * 7 + i * 3 + salt * 5 + 1) % text for i in range(length))


ORDER_FORMS: tuple[Literal["root", "states"], ...] = ("root", "states")


def tiny_order_model(seed: int = 0, encodes: Literal["root", "states"] = "root") -> OrderModel:
    """Random weights, wide enough spread that trees differ from chains."""
    torch.manual_seed(seed)
    sizes = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32, "head_width": 8}
    model = build_order_model(OrderModelConfig(encodes=encodes, **sizes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in ("head.weight", "distance", "tokens.table.weight"):
                parameter.copy_(2 * torch.randn(parameter.shape))
    return model.requires_grad_(False).eval()


def tiny_graphs(positions: int = 4, tokens: int = 2, deepest: int = 3) -> GraphFile:
    """Every set of up to ``deepest`` fills, smaller sets first."""
    fills = list(product(range(positions), range(tokens)))
    nodes = [
        node
        for depth in range(1, deepest + 1)
        for node in combinations(fills, depth)
        if len({position for position, _ in node}) == depth
    ]
    reached = tuple(1 / (2 + index) for index in range(len(nodes)))
    return GraphFile((DraftGraph(1.0, tuple(nodes), reached),), {})


def tiny_proposers(seed: int = 0) -> dict[str, Proposer]:
    """A proposer of every lossless method."""
    return {
        "chain": ChainProposer(),
        "wtree": WideTreeProposer(),
        "graph": GraphProposer(tiny_graphs()),
        "order": OrderProposer(tiny_order_model(seed)),
        **open_oracles(),
    }


def tiny_sets_proposer(seed: int = 0, hidden_size: int = 32, vocab_size: int = 24) -> SetsProposer:
    """Random weights and embeddings: it knows little more than the stale distribution."""
    torch.manual_seed(seed)
    sizes = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16, "token_width": 8}
    model = SetsModel(SetsModelConfig(hidden_size=hidden_size, **sizes))
    model = model.requires_grad_(False).eval()
    return SetsProposer(model, model.project(torch.randn(vocab_size, hidden_size)))


def foresee(
    target: AnyTarget, requests: Sequence[Request], proposers: Mapping[str, Proposer]
) -> None:
    """Let the oracles among ``proposers`` see the draft-free runs of the requests that ask them."""
    for method, proposer in proposers.items():
        if isinstance(proposer, OracleProposer):
            asking = [r for r in requests if r.options.method == method]
            free = [replace(r, options=r.options.draft_free()) for r in asking]
            recorder = TraceRecorder()
            results = decode(Decoder(target, {}, recorder), free, batch_size=4)
            proposer.futures.learn([recorder.finish(result) for result in results])


def with_stops(model: Transformer, stop_ids: Sequence[int]) -> Target:
    """The same network with other stop ids."""
    target = Target(model)
    target.spec = model.spec.model_copy(update={"stop_token_ids": tuple(stop_ids)})
    return target


def run(
    target: AnyTarget,
    requests: Sequence[Request],
    proposers: Mapping[str, Proposer] | None = None,
    batch_size: int = 1,
    observer: Observer | None = None,
) -> dict[str, Result]:
    """Results by request id; every slot is free again afterwards."""
    foresee(target, requests, proposers or {})
    decoder = Decoder(target, proposers or {}, observer)
    results = {result.request.id: result for result in decode(decoder, requests, batch_size)}
    assert not target.open_slots, "every prefix was freed"
    assert len(results) == len(requests)
    return results


def run_one(
    target: Target,
    prompt: Sequence[int],
    options: DecodeOptions,
    seed: int = 0,
    proposers: Mapping[str, Proposer] | None = None,
) -> Result:
    return run(target, [Request("one", tuple(prompt), options, seed)], proposers)["one"]


def outcome(result: Result) -> tuple[tuple[int, ...], str]:
    """What a client sees of a result."""
    return result.token_ids, result.stop_reason


def commits(result: Result) -> list[tuple[tuple[int, int], ...]]:
    """All steps of a result, in order."""
    return [step for round in result.rounds for step in round.steps]
