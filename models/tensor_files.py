"""Reading slices of safetensors straight to where they belong.

The library maps files into memory; copying out of the mapping took twice as long here as reading,
since every page of it faults first. So headers are checked by the library, and the bytes of a slice
are read by position, in pieces, into the parameter itself where it lies on the CPU in the file's
own precision, else through one small buffer.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from models.layout import Shape

PIECE_BYTES = 64 << 20
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies."""

    path: Path
    shape: Shape
    dtype: str
    first_byte: int


def find_tensors(folder: Path) -> dict[str, Stored]:
    """Every tensor of a checkpoint, from the headers of its files.

    Raises ``ValueError`` for a folder without any, a damaged file, and a name that stands twice.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} holds no *.safetensors (pickled weights are not read)")
    found: dict[str, Stored] = {}
    for path in files:
        for name, stored in _read_header(path).items():
            if name in found:
                raise ValueError(f"{path.name}: {name} stands in an earlier file too")
            found[name] = stored
    return found


def _read_header(path: Path) -> dict[str, Stored]:
    try:
        with safe_open(path, framework="pt"):
            pass  # the library's checks: offsets that fit the shapes, no holes, no bytes left over
    except SafetensorError as error:
        raise ValueError(f"{path.name} is no readable safetensors file: {error}") from error
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: Mapping[str, dict] = json.loads(file.read(size))
    first = 8 + size
    return {
        name: Stored(path, tuple(facts["shape"]), facts["dtype"], first + facts["data_offsets"][0])
        for name, facts in header.items()
        if name != "__metadata__"
    }


class TensorReader:
    """One open file and the buffer for what cannot be read in place."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._buffer: Tensor | None = None

    def __enter__(self) -> "TensorReader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def read(
        self, stored: Stored, place: Tensor, first_row: int = 0, first_column: int = 0
    ) -> None:
        """Fill ``place`` with as many rows and columns of a tensor as it has, from the given ones.

        Columns are of the second dimension; of the others ``place`` has all.
        """
        dtype = DTYPES.get(stored.dtype)
        if dtype is None:
            raise ValueError(
                f"{stored.path.name}: tensors of dtype {stored.dtype} are not read; known are "
                f"{', '.join(DTYPES)}"
            )
        row_shape = stored.shape[1:]
        row_bytes = torch.Size(row_shape).numel() * dtype.itemsize
        whole_rows = tuple(place.shape[1:]) == row_shape
        same = whole_rows and place.dtype == dtype and place.device.type == "cpu"
        in_place = same and place.is_contiguous()
        step = max(1, PIECE_BYTES // max(1, row_bytes))
        for row in range(0, place.shape[0], step):
            part = place[row : row + step]
            at = stored.first_byte + (first_row + row) * row_bytes
            if in_place:
                self._fill(part.view(torch.uint8), at)
                continue
            rows = self._scratch(len(part) * row_bytes)
            self._fill(rows, at)
            typed = rows.view(dtype).view(len(part), *row_shape)
            if not whole_rows:
                typed = typed[:, first_column : first_column + part.shape[1]]
            part.copy_(typed)

    def _scratch(self, size: int) -> Tensor:
        if self._buffer is None or len(self._buffer) < size:
            self._buffer = torch.empty(max(size, PIECE_BYTES), dtype=torch.uint8)
        return self._buffer[:size]

    def _fill(self, target: Tensor, at: int) -> None:
        self._file.seek(at)
        view = memoryview(cast(Any, target.flatten().numpy()))
        done = 0
        while done < len(view):
            count = self._file.readinto(view[done:])
            if not count:
                raise ValueError(f"{self._file.name}: ends in the middle of a tensor")
            done += count
