"""The type of `Tables` in compiled code. Importing this loads numba."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import from_dtype, types
from numba.core import imputils
from numba.core.registry import cpu_target
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model

_imputils: Any = imputils  # numba has no types for these


class TablesType(types.Type):
    """The type of a subclass of `Tables` in compiled code."""

    def __init__(self, cls: Any) -> None:
        self.numbers = cls.numbers
        self.columns = {name: row for name, row in cls.tables.items() if isinstance(row, str)}
        self.tables = {
            name: types.Array(types.int64, 2, "C")
            if name in self.columns
            else types.Array(from_dtype(row), 1, "C")
            for name, row in cls.tables.items()
        }
        super().__init__(name=f"{cls.__module__}.{cls.__name__}")


register_model(TablesType)(models.OpaqueModel)


@infer_getattr
class _Fields(AttributeTemplate):
    key = TablesType

    def generic_resolve(self, tables: Any, name: str) -> Any:  # type: ignore[override]
        """The type of a number or a table."""
        return types.int64 if name in tables.numbers else tables.tables.get(name)


def _number(builder: Any, pointer: Any, k: int) -> Any:
    """The address of number `k` of the memory."""
    numbers = builder.bitcast(pointer, ir.IntType(64).as_pointer())
    return builder.gep(numbers, [ir.Constant(ir.IntType(64), k)])


@_imputils.lower_getattr_generic(TablesType)
def _get(context: Any, builder: Any, tables: TablesType, pointer: Any, name: str) -> Any:
    """A number, or the array of a table: it lies in this memory, which it does not hold."""
    if name in tables.numbers:
        return builder.load(_number(builder, pointer, tables.numbers.index(name)))
    kind: Any = tables.tables[name]
    head = len(tables.numbers) + 2 * list(tables.tables).index(name)
    array = context.make_array(kind)(context, builder)
    begin, rows = (builder.load(_number(builder, pointer, head + k)) for k in range(2))
    data = builder.gep(_number(builder, pointer, 0), [begin])
    itemsize = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
    shape = [rows]
    strides = [itemsize]
    if kind.ndim == 2:
        shape.append(
            builder.load(_number(builder, pointer, tables.numbers.index(tables.columns[name])))
        )
        strides.insert(0, builder.mul(shape[1], itemsize))
    context.populate_array(
        array,
        data=builder.bitcast(data, array.data.type),
        shape=shape,
        strides=strides,
        itemsize=itemsize,
        meminfo=None,
    )
    return array._getvalue()


@_imputils.lower_setattr_generic(TablesType)
def _set(context: Any, builder: Any, signature: Any, values: Any, name: str) -> None:
    """Only numbers are set."""
    builder.store(values[1], _number(builder, values[0], signature.args[0].numbers.index(name)))


def type_of_viewer(cls: Any) -> Any:
    """The type of a compiled function that takes an array of int64 for the memory of tables."""
    kind = TablesType(cls)

    @intrinsic
    def view(typing: Any, memory: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, values[0])
            return builder.bitcast(array.data, context.get_value_type(kind))

        return kind(memory), generate

    cpu_target.typing_context.refresh()
    return cpu_target.typing_context.resolve_value_type(view)
