"""Threshold decoding that edits, by its definition: no cache, no batch, every forward over all."""

import math
from collections.abc import Sequence

from decoders.options import DecodeOptions
from models.transformer import Transformer
from tests.reference.decoding import (
    NaiveResult,
    drawn_token,
    log_odds_of,
    naive_step,
    text_end,
)
from tests.reference.network import reference_logits


def naive_edits(
    rows: dict[int, list[float]], tokens: Sequence[int], options: DecodeOptions, seed: int
) -> dict[int, int]:
    """What the filled positions of ``rows`` are replaced with."""
    bound = math.log(options.edit_tau / (1 - options.edit_tau)) if options.edit_tau else -math.inf
    found = {}
    for position, row in rows.items():
        token = drawn_token(row, options, seed, position)
        top1 = max(range(len(row)), key=lambda v: (row[v], -v))
        ranked = token if options.confidence == "chosen" else top1
        if token != tokens[position] and log_odds_of(row, ranked) > bound:
            found[position] = token
    return found


def naive_editing_decode(
    model: Transformer, prompt: Sequence[int], options: DecodeOptions, seed: int
) -> NaiveResult:
    """Decode one prompt; each block is filled, then edited until it stays as it is."""
    spec = model.spec
    block, mask, first = spec.block_size, spec.mask_token_id, len(prompt)
    limit = first + options.max_new_tokens
    stops = set() if options.ignore_stop else set(spec.stop_token_ids)
    start, tokens, steps = first // block * block, list(prompt), []
    if spec.topology == "bidirectional":
        start = first
        tokens += [mask] * (-(-options.max_new_tokens // block) * block)
    while True:
        tokens += [mask] * max(0, start + block - len(tokens))
        passes = 0
        while True:
            own = range(max(start, first), start + block)
            full = all(tokens[p] != mask for p in own)
            if full and passes == options.edit_passes:
                break
            logits = reference_logits(model, tokens)
            logits[:, mask] = -math.inf
            if start == 0 and tokens[:block] == [mask] * block:
                logits[:] = logits[0].clone()
            rows = {p: logits[p].tolist() for p in own}
            masked = {p: row for p, row in rows.items() if tokens[p] == mask}
            filled = {p: row for p, row in rows.items() if tokens[p] != mask}
            step = dict(naive_step(masked, options, seed)) if masked else {}
            step |= naive_edits(filled, tokens, options, seed)
            steps.append(tuple(sorted(step.items())))
            for position, token in step.items():
                tokens[position] = token
            passes += full
            if full and not step:
                break
        end = text_end(tokens, first, limit, mask, stops)
        if end >= 0:
            reason = "stop" if end < limit else "length"
            return NaiveResult(tuple(tokens[first:end]), reason, tuple(steps))
        start += block
