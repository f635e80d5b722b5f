"""Named tuples of arrays behind a pointer: compiled functions pass on one argument where there would be hundreds.

`pointer_to(x)` gives what serves as the named tuple `x` in compiled code; the named tuples in it are behind pointers,
too. It is good until the function returns that has made it. Numba hands a tuple on as its parts, seven numbers an
array: the plan checker takes 13 CPU seconds to compile so, 9 with pointers. Numba is
imported when it meets the first one.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any


class _PointerTo:
    """What compiled code calls: it has a type for numba. In Python a named tuple serves as itself."""

    def __call__(self, value: Any) -> Any:
        return value

    @property
    def _numba_type_(self) -> Any:
        return _function_type()


pointer_to: Any = _PointerTo()


@cache
def _function_type() -> Any:
    """Tell numba of pointers; the type of the function that makes one."""
    from numba import types
    from numba.core import cgutils, imputils
    from numba.core.registry import cpu_target
    from numba.core.typing.templates import AttributeTemplate, infer_getattr
    from numba.extending import intrinsic, models, register_model

    tools: Any = cgutils  # numba has no types for these
    rules: Any = imputils

    class PointerType(types.Type):
        """The type of a pointer to a named tuple."""

        def __init__(self, pointee: Any) -> None:
            self.pointee = pointee
            digest = hashlib.sha256(str(pointee).encode()).hexdigest()[
                :16
            ]  # short: it is in the names of functions
            super().__init__(name=f"pointer.{pointee.instance_class.__name__}.{digest}")

    register_model(PointerType)(models.OpaqueModel)

    @infer_getattr
    class PointerFields(AttributeTemplate):
        key = PointerType

        def generic_resolve(self, pointer: Any, name: str) -> Any:  # type: ignore[override]
            if name not in pointer.pointee.fields:
                return None
            kind = pointer.pointee.types[pointer.pointee.fields.index(name)]
            return PointerType(kind) if isinstance(kind, types.BaseNamedTuple) else kind

    @rules.lower_getattr_generic(PointerType)
    def get(context: Any, builder: Any, pointer: PointerType, value: Any, name: str) -> Any:
        k = pointer.pointee.fields.index(name)
        pointee = context.get_value_type(pointer.pointee)
        field = tools.gep_inbounds(builder, builder.bitcast(value, pointee.as_pointer()), 0, k)
        kind = pointer.pointee.types[k]
        if isinstance(kind, types.BaseNamedTuple):
            return builder.bitcast(field, context.get_value_type(PointerType(kind)))
        return rules.impl_ret_borrowed(context, builder, kind, builder.load(field))

    @intrinsic
    def make(typing: Any, value: Any) -> Any:
        kind = PointerType(value)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            place = tools.alloca_once_value(builder, values[0])
            return builder.bitcast(place, context.get_value_type(kind))

        return kind(value), generate

    cpu_target.typing_context.refresh()
    return cpu_target.typing_context.resolve_value_type(make)
