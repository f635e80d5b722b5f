"""Named tuples of arrays behind a pointer: compiled functions pass on one argument where there would be hundreds.

`pointer_to(x)` gives what serves as the named tuple `x` in compiled code; the named tuples in it are behind pointers,
too. It is good until the function returns that has made it. Numba hands a tuple on as its parts, seven numbers an
array: the plan checker takes 13 CPU seconds to compile so, 9 with pointers. Loads numba, so only compiled modules
import this.
"""

from __future__ import annotations

import hashlib
from typing import Any

from numba import types
from numba.core import cgutils, imputils
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model

_imputils: Any = imputils  # numba has no types for these
_cgutils: Any = cgutils


class PointerType(types.Type):
    """The type of a pointer to a named tuple."""

    def __init__(self, pointee: Any) -> None:
        self.pointee = pointee
        digest = hashlib.sha256(str(pointee).encode()).hexdigest()[:16]  # short: it is in the names of functions
        super().__init__(name=f"pointer.{pointee.instance_class.__name__}.{digest}")


register_model(PointerType)(models.OpaqueModel)


@infer_getattr
class _PointerFields(AttributeTemplate):
    key = PointerType

    def generic_resolve(self, pointer: Any, name: str) -> Any:  # type: ignore[override]
        """The type of a field."""
        if name not in pointer.pointee.fields:
            return None
        kind = pointer.pointee.types[pointer.pointee.fields.index(name)]
        return PointerType(kind) if isinstance(kind, types.BaseNamedTuple) else kind


@_imputils.lower_getattr_generic(PointerType)
def _get(context: Any, builder: Any, pointer: PointerType, value: Any, name: str) -> Any:
    """A field: a pointer to it, or what it is."""
    k, pointee = pointer.pointee.fields.index(name), context.get_value_type(pointer.pointee)
    field = _cgutils.gep_inbounds(builder, builder.bitcast(value, pointee.as_pointer()), 0, k)
    kind = pointer.pointee.types[k]
    if isinstance(kind, types.BaseNamedTuple):
        return builder.bitcast(field, context.get_value_type(PointerType(kind)))
    return _imputils.impl_ret_borrowed(context, builder, kind, builder.load(field))


@intrinsic
def _pointer_to(typing: Any, value: Any) -> Any:
    kind = PointerType(value)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = _cgutils.alloca_once_value(builder, values[0])
        return builder.bitcast(place, context.get_value_type(kind))

    return kind(value), generate


pointer_to: Any = _pointer_to
