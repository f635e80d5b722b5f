"""Models from elsewhere.

taskflow has no operators, so the package that has them does the work. It is looked up among what the program has
imported: importing it here would turn the layers upside down, and a registry would be state for the sake of one name.
"""

from __future__ import annotations

import sys
from typing import Any


def from_torch(module: Any, example_inputs: Any) -> Any:
    """A torch module as a graph with its weights: `ops.from_torch`, which says more.

    Args:
        module: a torch.nn.Module that torch.fx can trace.
        example_inputs: the tensors, or the only one, that its `forward` takes.

    Raises:
        ImportError: the program has not imported `ops`.
        ValueError: something in the module has no operator; source lines are named.
    """
    operators = sys.modules.get("ops")
    if operators is None:
        raise ImportError("from_torch: import ops first: taskflow itself has no operators")
    return operators.from_torch(module, example_inputs)
