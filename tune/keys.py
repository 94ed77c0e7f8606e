"""The hash that names a trial: of everything that decides what it finds."""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from decoders.options import DecodeOptions
from tune.config import SweepConfig
from tune.row import Fidelity


def trial_key(
    config: SweepConfig, identity: Mapping[str, Any], fidelity: Fidelity, options: DecodeOptions
) -> str:
    """The key of one setting at one fidelity. ``identity`` holds digests of target, drafter and
    problems, and where the target runs."""
    resolved: dict[str, Any] = {**identity, "fidelity": fidelity, "decode": options.model_dump()}
    if options.method != "order":
        del resolved["drafter"]
    if fidelity == "live":
        resolved |= {"problems_each": config.tasks.live, "repeats": config.live.repeats}
        if config.live.precision is not None:
            resolved |= config.live.model_dump(include={"precision", "max_repeats"})
    text = json.dumps(resolved, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()
