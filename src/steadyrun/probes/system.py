"""Memory of the process and the devices, GPU utilisation and temperature if the driver reports them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from steadyrun.probes.row_queue import Values
from steadyrun.program.torch_compat import observe_out_of_memory

_STATM = Path("/proc/self/statm")
_MIB = 2.0**20


class SystemProbe:
    """Reads the host and, where there is one, the GPU."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
        self._has_statm = _STATM.exists()
        self._nvml = _nvml(note) if torch.cuda.is_available() else None

    def measure(self) -> Values:
        """Sizes in MiB, utilisation in percent, temperature in degrees Celsius."""
        values: Values = {}
        if self._has_statm:
            values["memory/process"] = int(_STATM.read_text().split()[1]) * self._page / _MIB
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            device = torch.cuda.current_device()
            values["memory/device"] = torch.cuda.memory_allocated(device) / _MIB
            values["memory/device_reserved"] = torch.cuda.memory_reserved(device) / _MIB
            values["memory/device_peak"] = torch.cuda.max_memory_allocated(device) / _MIB
            values.update(self._driver_values(device))
        return values

    def _driver_values(self, device: int) -> Values:
        if self._nvml is None:
            return {}
        handle = self._nvml.nvmlDeviceGetHandleByIndex(_physical(device))
        return {
            "gpu/utilisation": float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "gpu/temperature": float(self._nvml.nvmlDeviceGetTemperature(handle, self._nvml.NVML_TEMPERATURE_GPU)),
        }


def _nvml(note: Callable[[str, str], None]) -> Any | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml
    except Exception as problem:
        note("gpu utilisation and temperature", f"{problem}; install nvidia-ml-py: pip install 'steadyrun[gpu]'")
        return None


def _physical(device: int) -> int:
    """The driver counts all GPUs, torch only those in CUDA_VISIBLE_DEVICES."""
    visible = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return int(visible[device]) if device < len(visible) and visible[device].isdigit() else device


def on_out_of_memory(report: Callable[[dict[str, float]], None]) -> bool:
    """Call `report` whenever the CUDA allocator gives up, even if the training loop catches the error."""

    def observer(device: int, size: int, allocated: int, free: int) -> None:
        report({"device": device, "asked_mib": size / _MIB, "allocated_mib": allocated / _MIB, "free_mib": free / _MIB})

    return observe_out_of_memory(observer)
