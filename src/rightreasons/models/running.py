"""Where and how networks run: device, precision, threads, and randomness that is put back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from rightreasons.errors import SettingError
from rightreasons.stats.resampling import task_rng


def device_of(named: str | torch.device | None) -> torch.device:
    """The device of that name, CUDA with its number; None: CUDA if there is one."""
    if named is None:
        named = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(named)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise SettingError(
            f"device={str(named)!r} is no device of this machine, which has {torch.cuda.device_count()} GPUs: give cpu, cuda, or "
            "cuda:1 for the second GPU"
        ) from error
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def refuse_unknown_device(named: str, where: str = "") -> None:
    """Refuse a name that is no device on any machine; one that only this machine lacks is accepted."""
    try:
        torch.device(named)
    except RuntimeError as error:
        raise SettingError(f"{where} device is {named!r}: give cpu, cuda, or cuda:1 for the second GPU".strip()) from error


def precision_of(amp: bool | str | None, device: torch.device) -> torch.dtype | None:
    """The precision of autocast that `amp` stands for on a device; None: float32 throughout."""
    if amp is False or (amp is None and device.type == "cpu"):
        return None
    if isinstance(amp, str):
        return {"bf16": torch.bfloat16, "fp16": torch.float16}[amp]
    if device.type == "cpu" or torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return torch.float16


@contextmanager
def on_threads(number: int | None) -> Iterator[None]:
    """Use this many of torch's CPU threads inside (None: all), and the previous number afterwards."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Dropout and drop path draw from torch's global state: inside we own it, and afterwards it is restored."""
    on_cuda = device.type == "cuda"
    cudnn = torch.backends.cudnn
    steady = cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=cudnn.allow_tf32)
    with torch.random.fork_rng([device.index] if on_cuda else []), steady if on_cuda else nullcontext():
        yield


def seed_torch(seed: int, task: str, device: torch.device) -> None:
    """Seed torch's global generators of the CPU and of this device for a task."""
    number = int(task_rng(seed, task).integers(2**62))
    torch.random.default_generator.manual_seed(number)  # torch.manual_seed would also touch every GPU
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(number)


def generator_of(seed: int, task: str, device: torch.device) -> torch.Generator:
    """A separate generator for a task."""
    return torch.Generator(device).manual_seed(int(task_rng(seed, task).integers(2**62)))
