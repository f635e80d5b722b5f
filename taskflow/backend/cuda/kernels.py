"""Compiled kernels: one for each source text, name and GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taskflow.backend.streams import NotCapturable


class KernelTable:
    """What was compiled so far.

    Different sources may have kernels of one name, with other parameters: a name alone says nothing.

    Args:
        load: `load(source, name)` compiles and loads a kernel for the current GPU.
    """

    def __init__(self, load: Callable[[str, str], Any]) -> None:
        self._load = load
        self._loaded: dict[tuple[str, str, int], Any] = {}

    def find(self, source: str, name: str, gpu: int, is_capturing: bool) -> Any:
        """The kernel `name` of a source, on the current GPU.

        Raises:
            NotCapturable: it has yet to be compiled, while a graph is captured.
        """
        key = source, name, gpu
        if key not in self._loaded:
            if is_capturing:
                raise NotCapturable(f"kernel '{name}' is compiled")
            self._loaded[key] = self._load(source, name)
        return self._loaded[key]
