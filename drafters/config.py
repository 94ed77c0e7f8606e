"""Which drafter to load and where it runs (``drafter.*`` of a configuration)."""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from models.config import Dtype

ORDER_TYPE, SETS_TYPE = "maskahead-order", "maskahead-sets"
"""``model_type`` of the two kinds of drafter folders."""
REGISTERED = "models:/"
"""How the name of a registered drafter begins."""
FOLDERS = ("path", "sets")
"""Keys that may hold such a name: it is fetched, and a folder, before a target is opened."""


class DrafterConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    path: str | None = None
    """An order model's folder or registered name (``models:/maskahead-order@ALIAS``), or for simsd
    the small model's checkpoint; by default the one in the target's folder, else the bundled
    one."""
    small: str | None = None
    """The small model's checkpoint where ``path`` is a drafter's folder."""
    sets: str | None = None
    """A sets model's folder or registered name (method sets); by default ``path`` where that is
    one, else the one in the target's folder, else the bundled one."""
    graph: str | None = None
    """A file of calibrated draft graphs; by default the one in the target's folder, else the
    bundled one."""
    placement: Literal["target", "actor"] = "target"
    """In the target's process, or in an actor of its own."""
    ahead: bool = True
    """In an actor of its own, the small model of simsd begins with the next block while the target
    verifies the one before; what turns out otherwise is rolled back."""
    dtype: Dtype = "float32"
    """Of the small model of simsd."""
    device: str = "cpu"
    """Where the order model (in few shapes, by CUDA graphs) or the small model of simsd runs: cpu,
    cuda or cuda:N."""

    @property
    def registered(self) -> dict[str, str]:
        """The registered names among its folders, by key."""
        named = {key: getattr(self, key) or "" for key in FOLDERS}
        return {key: path for key, path in named.items() if path.startswith(REGISTERED)}

    @property
    def sets_path(self) -> str | None:
        """The sets model's folder, where one is named."""
        if self.sets is None and self.path is not None and kind_of_drafter(self.path) == SETS_TYPE:
            return self.path
        return self.sets


def kind_of_drafter(path: str) -> str | None:
    """The ``model_type`` of a drafter folder, if it is one."""
    folder = Path(path)
    return read_config(folder).get("model_type") if (folder / "config.json").exists() else None


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a drafter folder; ``ValueError`` where that is no JSON object."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"drafter {folder}: config.json is no JSON ({error})") from error
    if not isinstance(config, dict):
        raise ValueError(f"drafter {folder}: config.json is no JSON object")
    return config
