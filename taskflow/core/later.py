"""Values of which a part is made only when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T", bound="Later")


class Later:
    """A base of dataclasses: fields that are not there are made, all at once, by the first who reads one.

    Such fields have no default, which would be read instead.
    """

    @classmethod
    def later(cls: type[T], make: Callable[[], T], **known: Any) -> T:
        """A value of which some fields are known, and `make` makes it all."""
        made = object.__new__(cls)
        vars(made).update(known, _make=make)
        return made

    def __getattr__(self, name: str) -> Any:
        """A field that is not there."""
        if name.startswith("__") or "_make" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")
        self._complete()
        return getattr(self, name)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles have all fields."""
        self._complete()
        return vars(self)

    def _complete(self) -> None:
        if make := vars(self).get("_make"):
            vars(self).update({**vars(make()), **vars(self)})
            vars(self).pop("_make", None)  # last: another thread may read a field meanwhile
