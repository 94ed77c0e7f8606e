"""``maskahead import-order``: an order model that was published as a PyTorch state dict.

Only tensors are read (no pickled code can run). Names may carry a wrapper's prefix; everything else
must fit this product's network, or the import says in one list what does not.
"""

import pickle
from collections import Counter
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from drafters.bundle import save_order_model
from drafters.order_model import OrderModel, OrderModelConfig, build_order_model
from models.invalid import one_line

NESTED = ("state_dict", "model_state_dict", "model", "params")
"""Keys under which training programs keep the tensors."""

Tensors = dict[str, Tensor]


def import_order_model(file: Path, out: Path, config: OrderModelConfig | None = None) -> OrderModel:
    """Convert the state dict in ``file`` to a drafter folder.

    Raises ``ValueError`` that lists every missing, unknown and misshapen tensor; nothing is written
    then.
    """
    tensors = without_wrapper(read_tensors(file))
    model = build_order_model(config or guess_config(tensors))
    problems = misfits(tensors, model)
    if problems:
        raise ValueError(f"{file} does not fit the order model: {'; '.join(problems)}")
    model.load_state_dict(tensors)
    save_order_model(model.eval(), out)
    return model


def read_tensors(file: Path) -> Tensors:
    """The tensors of a ``.pt`` file, by name."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError) as error:
        reason = str(error).split("\n")[0]
        raise ValueError(f"{file}: not a file of plain tensors ({reason})") from error
    for key in NESTED:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(t, Tensor) for t in content.values()):
        raise ValueError(f"{file}: not a state dict (a mapping of names to tensors)")
    return {str(name): tensor.float() for name, tensor in content.items()}


def without_wrapper(tensors: Tensors) -> Tensors:
    """Names without a first part that all of them share ("module.", "model.")."""
    while tensors:
        firsts = Counter(name.partition(".")[0] for name in tensors)
        shared = len(firsts) == 1 and all("." in name for name in tensors)
        if not shared:
            break
        tensors = {name.partition(".")[2]: tensor for name, tensor in tensors.items()}
    return tensors


def guess_config(tensors: Tensors) -> OrderModelConfig:
    """Form and sizes as names and shapes tell them; the number of heads they do not tell, so that
    is the default. Nor do they tell whose token ids a table is for, so those stay hidden."""
    ours = "own_out.weight" in tensors
    values: dict[str, int | str] = {"encodes": "root" if ours else "states", "token_buckets": 0}
    layers = {
        int(parts[2])
        for parts in (name.split(".") for name in tensors)
        if parts[:2] == ["encoder", "layers"] and parts[2].isdigit()
    }
    if layers:
        values["layers"] = max(layers) + 1
    first = tensors.get("encoder.layers.0.linear1.weight")
    if first is not None and first.dim() == 2:
        values["feed_forward"], values["width"] = first.shape
    read_out = tensors.get("own_out.weight")
    if read_out is not None and read_out.dim() == 2:
        values["head_width"] = len(read_out)
    table = tensors.get("tokens.table.weight")
    if table is not None and table.dim() == 2:
        values["token_buckets"], values["token_width"] = table.shape
    try:
        return OrderModelConfig.model_validate(values)
    except ValidationError as error:
        raise ValueError(one_line(error, OrderModelConfig)) from error


def misfits(tensors: Tensors, model: OrderModel) -> list[str]:
    """What does not fit, one entry a tensor."""
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    missing = [f"missing {name} {list(wanted[name])}" for name in sorted(wanted.keys() - found)]
    unknown = [f"unknown {name} {list(found[name])}" for name in sorted(found.keys() - wanted)]
    misshapen = [
        f"{name} is {list(found[name])}, not {list(wanted[name])}"
        for name in sorted(wanted.keys() & found.keys())
        if wanted[name] != found[name]
    ]
    broken = [f"{name} holds values that are not finite" for name in sorted(_not_finite(tensors))]
    return [*missing, *unknown, *misshapen, *broken]


def _not_finite(tensors: Tensors) -> set[str]:
    return {name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())}
