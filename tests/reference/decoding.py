"""Decoding without drafts by its definition: no cache, no batch, every forward over everything.

Each step forwards the whole sequence so far with the active block, under an explicit mask, and
commits by the rules of contracts.md in plain Python floats.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from decoders.options import DecodeOptions
from models.transformer import Transformer
from tests.reference.network import reference_logits
from tests.reference.philox import gumbel


@dataclass(frozen=True)
class NaiveResult:
    token_ids: tuple[int, ...]
    stop_reason: str
    steps: tuple[tuple[tuple[int, int], ...], ...]
    """The commits of each forward: (absolute position, token), positions ascending."""


def log_sum_exp(values: Sequence[float]) -> float:
    top = max(values, default=-math.inf)
    if top == -math.inf:
        return top
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def filtered(logits: Sequence[float], options: DecodeOptions) -> list[float]:
    """Log-probabilities after temperature, then top-k, then top-p."""
    scores = [x / options.temperature for x in logits]
    ranked = sorted(range(len(scores)), key=lambda v: (-scores[v], v))
    if options.top_k:
        ranked = ranked[: options.top_k]
    if options.top_p < 1:
        total = log_sum_exp([scores[v] for v in ranked])
        kept, mass = [], 0.0
        for v in ranked:
            if mass < options.top_p:
                kept.append(v)
            mass += math.exp(scores[v] - total)
        ranked = kept
    total = log_sum_exp([scores[v] for v in ranked])
    return [scores[v] - total if v in ranked else -math.inf for v in range(len(scores))]


def drawn_token(logits: Sequence[float], options: DecodeOptions, seed: int, position: int) -> int:
    """The token at one position; ``logits`` have the mask token at -inf."""
    scores = list(logits)
    if options.temperature > 0:
        scores = filtered(logits, options)
        scores = [s + gumbel(seed, position, v) for v, s in enumerate(scores)]
    return max(range(len(scores)), key=lambda v: (scores[v], -v))


def log_odds_of(logits: Sequence[float], token: int) -> float:
    others = [x for v, x in enumerate(logits) if v != token]
    return logits[token] - log_sum_exp(others)


def naive_step(
    rows: dict[int, list[float]], options: DecodeOptions, seed: int
) -> tuple[tuple[int, int], ...]:
    """The step of one state: ``rows`` maps each masked absolute position to its logits."""
    tokens = {p: drawn_token(row, options, seed, p) for p, row in rows.items()}
    ranks = {}
    for position, row in rows.items():
        top1 = max(range(len(row)), key=lambda v: (row[v], -v))
        ranked = tokens[position] if options.confidence == "chosen" else top1
        ranks[position] = log_odds_of(row, ranked)
    if options.method == "threshold":
        bound = math.log(options.tau / (1 - options.tau)) if options.tau else -math.inf
        passing = [p for p in sorted(ranks) if ranks[p] > bound]
        if passing:
            return tuple((p, tokens[p]) for p in passing)
    elif options.cap < 1:
        cap = math.log(options.cap / (1 - options.cap)) if options.cap else -math.inf
        ranks = {p: min(rank, cap) for p, rank in ranks.items()}
    best = max(ranks, key=lambda p: (ranks[p], -p))
    return ((best, tokens[best]),)


def text_end(tokens: Sequence[int], first: int, limit: int, mask: int, stops: set[int]) -> int:
    """Where the text ends if it has ended (``limit`` or its first stop id), else -1."""
    for position in range(first, limit):
        if position >= len(tokens) or tokens[position] == mask:
            return -1
        if tokens[position] in stops:
            return position
    return limit


def naive_decode(
    model: Transformer, prompt: Sequence[int], options: DecodeOptions, seed: int
) -> NaiveResult:
    """Decode one prompt; ``model.spec`` says what masks and what stops."""
    spec = model.spec
    block, mask = spec.block_size, spec.mask_token_id
    stops = set() if options.ignore_stop else set(spec.stop_token_ids)
    first, limit = len(prompt), len(prompt) + options.max_new_tokens
    tokens, steps = list(prompt), []
    whole = spec.topology == "bidirectional"
    if whole:
        # Blocks are counted from the prompt's end; all that will be written stands there masked.
        tokens += [mask] * (-(-options.max_new_tokens // block) * block)
    while (end := text_end(tokens, first, limit, mask, stops)) < 0:
        if mask not in tokens:
            tokens += [mask] * (block - len(tokens) % block)
        logits = reference_logits(model, tokens)
        logits[:, mask] = -math.inf
        masked = [p for p, token in enumerate(tokens) if token == mask]
        if whole:
            number = (masked[0] - first) // block
            masked = [p for p in masked if (p - first) // block == number]
        if len(masked) == block and masked[0] == 0:
            # Nothing but masks: all rows are equal in exact arithmetic, whatever rounding says.
            logits[:] = logits[0].clone()
        steps.append(naive_step({p: logits[p].tolist() for p in masked}, options, seed))
        for position, token in steps[-1]:
            tokens[position] = token
    return NaiveResult(tuple(tokens[first:end]), "stop" if end < limit else "length", tuple(steps))
