"""Machine code for what Python calls alone: numba's code libraries, with optimisation put off until code is asked for.

numba optimises every function when it has been compiled, together with all that it calls, and makes machine code of it,
though a function that only compiled functions call is copied into these and optimised there again. Here a library holds
the plain code of its function until somebody asks for an address in it. Only then the code of all that it calls,
directly or not, is linked in, and the whole is optimised once. A first `lower` takes less than half the time that way.

It is so for the whole process, as numba has one code generator. Versions of numba that this was not tried with are left
as they are.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import gc
import sys
from functools import cache
from typing import Any

import numba
from llvmlite import binding
from numba.core import codegen, environment, event, registry
from numba.core.compiler_lock import global_compiler_lock

from taskflow.core.code_cache import CodeCache

_LATE = "object code, and LLVM code that is read late"
_TRIED = ((0, 61), (0, 68))  # versions of numba, first and last


class _Library(codegen.JITCodeLibrary):
    """The code of one function, and where it is machine code, of all that it calls."""

    _bitcode: bytes | None = None

    def _ensure_finalized(self) -> None:
        """Not yet: linking into others needs the plain code alone."""

    @global_compiler_lock
    def finalize(self) -> None:
        """Link, optimise and make machine code."""
        *below, _ = self._callees_first({})
        self._linking_libraries = below[::-1]  # LLVM leaves out what nobody has asked for so far
        super().finalize()
        for variable in self._final_module.global_variables:
            held = environment.lookup_environment(variable.name)
            if held is not None:
                target: Any = self._codegen
                target.set_env(variable.name, held)

    def get_pointer_to_function(self, name: str) -> int:
        """The address of a function, 0 where there is none of this name."""
        if not self._finalized and any(f.name == name for f in self.get_defined_functions()):
            self.finalize()
        return int(super().get_pointer_to_function(name))

    def serialize_using_object_code(self) -> Any:
        """What is kept on disk."""
        if not self._finalized:
            self.finalize()
        name, _, data = super().serialize_using_object_code()
        variables = (*self._final_module.functions, *self._final_module.global_variables)
        defined = [variable.name for variable in variables if not variable.is_declaration]
        return name, _LATE, (*data, defined)

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> Any:
        """The library of what is kept; its LLVM code is read where another one links it, which is rare."""
        name, kind, data = state
        if kind != _LATE:
            return super()._unserialize(codegen, state)
        code, bitcode, symbols = data
        library = codegen.create_library(name)
        library.enable_object_caching()
        library._set_compiled_object(code)
        library._finalize_final_module()
        library._bitcode = bitcode
        codegen._engine._defined_symbols.update(symbols)
        return library

    def _get_module_for_linking(self) -> Any:
        if self._bitcode is not None and self._shared_module is None:
            self._shared_module = binding.parse_bitcode(self._bitcode)
        return super()._get_module_for_linking()

    def _callees_first(self, seen: dict[Any, None]) -> dict[Any, None]:
        """All libraries that this one links, directly or not, and itself."""
        for library in self._linking_libraries:
            if isinstance(library, _Library) and library not in seen:
                library._callees_first(seen)
            seen[library] = None
        seen[self] = None
        return seen


class _Codegen(codegen.JITCPUCodegen):
    _library_class = _Library

    def set_env(self, env_name: str, env: Any) -> None:
        """Note where the objects of a function are, where it is machine code."""
        if self._engine.is_symbol_defined(env_name):
            super().set_env(env_name, env)


class _CollectorPause(event.Listener):
    """Collects no garbage while a function is compiled, which makes few cycles and many objects: 16 % of the time."""

    depth = 0
    was_enabled = False

    def on_start(self, event: Any) -> None:
        """A function is compiled, maybe for another one."""
        if not self.depth:
            self.was_enabled = gc.isenabled()
            gc.disable()
        self.depth += 1

    def on_end(self, event: Any) -> None:
        """It is compiled, or cannot be."""
        self.depth -= 1
        cache = event.data["dispatcher"]._cache
        if sys.exception() is not None and isinstance(
            cache, CodeCache
        ):  # `is_failed` is the reverse in numba 0.68
            cache.release()
        if not self.depth and self.was_enabled:
            gc.enable()


@cache
def build_late() -> None:
    """From now on numba makes machine code of what is asked for alone."""
    target = registry.cpu_target.target_context.codegen()
    version = tuple(int(part) for part in numba.__version__.split(".")[:2])
    if type(target) is codegen.JITCPUCodegen and _TRIED[0] <= version <= _TRIED[1]:
        target.__class__ = _Codegen
        event.register("numba:compile", _CollectorPause())
