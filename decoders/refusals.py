"""Requests that a target cannot take, refused before anything of them is decoded."""

from collections.abc import Sequence

from decoders.boundary import check_boundary
from decoders.options import DecodeOptions
from decoders.request import Request
from models.spec import TargetSpec


def check_request(request: Request, spec: TargetSpec) -> None:
    """Raise ``ValueError`` for a prompt or for options that this target cannot take."""
    check_tokens(request.prompt_ids, spec, f"prompt_ids of {request.id}")
    check_options(request.options, spec)
    length = len(request.prompt_ids) + request.options.max_new_tokens
    if length > spec.max_positions:
        raise ValueError(
            f"prompt of {request.id} and max_new_tokens make {length} positions; this target "
            f"has {spec.max_positions}"
        )


def check_tokens(ids: Sequence[int], spec: TargetSpec, name: str) -> None:
    """Raise ``ValueError``, with the prompt's ``name``, for ids that no text of this target has."""
    for token in ids:
        if not 0 <= token < spec.vocab_size or token == spec.mask_token_id:
            raise ValueError(
                f"{name}: {token} is not a text token of this target "
                f"(0..{spec.vocab_size - 1} without the mask id {spec.mask_token_id})"
            )


def check_options(options: DecodeOptions, spec: TargetSpec) -> None:
    """Raise ``ValueError`` for options that this target cannot be decoded with."""
    check_boundary(options, spec)
    if options.method == "simsd" and options.gamma > spec.block_size:
        raise ValueError(
            f"decode.gamma {options.gamma:g}: this target's blocks have {spec.block_size} "
            "positions (0 drafts the whole block)"
        )
    if options.cache_refresh and spec.topology != "bidirectional":
        raise ValueError(
            f"decode.cache_refresh {options.cache_refresh}: the prefix cache of this "
            "block-causal target is exact and needs no refresh; valid: 0"
        )
