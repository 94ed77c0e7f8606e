"""What a device tells the host in one transfer arrives as it was."""

import numpy as np
import pytest
import torch

from models.transfer import fetch_later, fill_from, pack, to_device, unpack


@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_packed_tensors_are_unpacked_bit_by_bit(wide: torch.dtype) -> None:
    tensors = [
        torch.tensor([[0, 151_935], [7, 3]]),
        torch.tensor([0.1, -torch.inf, torch.inf, 1e-40], dtype=wide),
        torch.empty((0, 4)),
        torch.tensor([[1.5], [-0.0]], dtype=torch.float32),
    ]
    found = unpack(pack(tensors), [(tensor.shape, tensor.dtype) for tensor in tensors])
    for array, tensor in zip(found, tensors, strict=True):
        assert array.dtype == tensor.numpy().dtype
        np.testing.assert_array_equal(array, tensor.numpy())
        assert array.tobytes() == tensor.numpy().tobytes()


def test_on_a_cpu_tensors_are_read_where_they_lie() -> None:
    tensor = torch.arange(4)
    (array,) = fetch_later(tensor)()
    assert to_device(tensor, torch.device("cpu")) is tensor
    fill_from(tensor, torch.tensor([5, 6, 7, 8]))
    assert array.tolist() == [5, 6, 7, 8]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_waited_for_only_when_its_answer_is_read() -> None:
    cuda = torch.device("cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        sent = to_device(torch.arange(6), cuda)
        read = fetch_later(sent * 2, sent.float())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    doubled, same = read()
    assert doubled.tolist() == [0, 2, 4, 6, 8, 10]
    assert same.dtype == np.float32
