"""Decoding a bidirectional target by the definition of its kept prefix: no cache but a list of
keys and values, every forward over everything, what is kept put in place of what was computed."""

import math
from collections.abc import Sequence

from decoders.options import DecodeOptions
from models.transformer import Transformer
from tests.reference.decoding import NaiveResult, naive_step, text_end
from tests.reference.network import Kept, reference_logits


def naive_kept_decode(
    model: Transformer, prompt: Sequence[int], options: DecodeOptions, seed: int
) -> NaiveResult:
    """Decode one prompt, stop ids ignored."""
    spec = model.spec
    block, mask = spec.block_size, spec.mask_token_id
    first, limit = len(prompt), len(prompt) + options.max_new_tokens
    tokens = [*prompt, *[mask] * (-(-options.max_new_tokens // block) * block)]
    kept: Kept = {}
    steps = []
    while text_end(tokens, first, limit, mask, set()) < 0:
        number = (tokens.index(mask) - first) // block
        start = first + number * block
        opening = tokens[start : start + block] == [mask] * block
        if opening and number % options.cache_refresh == 0:
            kept = {}
        seen: Kept = {}
        logits = reference_logits(model, tokens, kept=kept, seen=seen)
        if opening:
            # The token before a block, which predicts its first one, is computed in every forward.
            last = start - (spec.prediction == "shifted")
            kept = {layer: (k[: max(0, last)], v[: max(0, last)]) for layer, (k, v) in seen.items()}
        logits[:, mask] = -math.inf
        masked = [p for p in range(start, start + block) if tokens[p] == mask]
        if len(masked) == block and masked[0] == 0:
            logits[:] = logits[0].clone()
        steps.append(naive_step({p: logits[p].tolist() for p in masked}, options, seed))
        for position, token in steps[-1]:
            tokens[position] = token
    return NaiveResult(tuple(tokens[first:limit]), "length", tuple(steps))
