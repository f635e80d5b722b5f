"""A plugin of pytest: NVRTC compiles as fast as it can, for nothing runs what it makes on the stub."""

from taskflow.backend.cuda import device

device._OPTIONS += ("--Ofast-compile=max",)
