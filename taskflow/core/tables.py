"""Tables in one memory: what compiled code knows of something, passed on as a single pointer.

A subclass of `Tables` names its numbers and its tables. In compiled code `s.need[k].next` is a field of a record,
`s.need_box[k]` a row of a 2-D array, and `s.rows += 1` counts; in Python the same names are NumPy views. The memory is
one array of int64: the numbers stand first, then, for every table, where it begins and how many rows it has. A tuple of
as many arrays would be two hundred arguments of every function; a pointer is one, and nobody counts references to it,
since whoever calls compiled code holds the memory.

Loads numba, so only compiled modules import this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import imputils
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model

NUMBER = np.dtype(np.int64)
_imputils: Any = imputils  # numba has no types for these


class Tables:
    """What stands in one memory.

    Attributes:
        numbers: names of numbers that change.
        tables: per table the dtype of its rows, all of whose fields are int64; or the name of a number, which says how
            many int64 a row has.
    """

    numbers: ClassVar[tuple[str, ...]]
    tables: ClassVar[Mapping[str, Any]]

    def __init__(self, memory: Any) -> None:
        """What compiled code left in `memory`."""
        self.memory = memory

    def __getattr__(self, name: str) -> Any:
        """A number, or a view of a table."""
        if name in self.numbers:
            return int(self.memory[self.numbers.index(name)])
        if name not in self.tables:
            raise AttributeError(name)
        row, head = self.tables[name], len(self.numbers) + 2 * list(self.tables).index(name)
        begin, rows = self.memory[head : head + 2].tolist()
        width = getattr(self, row) if isinstance(row, str) else row.itemsize // NUMBER.itemsize
        table = self.memory[begin : begin + rows * width]
        return table.reshape(rows, width) if isinstance(row, str) else table.view(row)

    if TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            """Compiled code sets numbers."""


class TablesType(types.Type):
    """The type of a subclass of `Tables` in compiled code."""

    def __init__(self, cls: type[Tables]) -> None:
        self.numbers = cls.numbers
        self.columns = {name: row for name, row in cls.tables.items() if isinstance(row, str)}
        self.tables = {
            name: types.Array(types.int64, 2, "C") if name in self.columns else types.Array(from_dtype(row), 1, "C")
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
    shape, strides = [rows], [itemsize]
    if kind.ndim == 2:
        shape.append(builder.load(_number(builder, pointer, tables.numbers.index(tables.columns[name]))))
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


def viewer(cls: type[Tables]) -> Any:
    """A compiled function that takes an array of int64 for the memory of tables."""
    kind = TablesType(cls)

    @intrinsic
    def view(typing: Any, memory: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, values[0])
            return builder.bitcast(array.data, context.get_value_type(kind))

        return kind(memory), generate

    return view
