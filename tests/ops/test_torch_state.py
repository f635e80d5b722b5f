"""Names and shapes of torch's weights; `tests/peer` holds them to torch itself."""

import numpy as np
import pytest

import ops


def test_most_names_stay() -> None:
    state = {
        "fc.weight": np.ones((3, 2)),
        "norm.running_var": np.ones(3),
        "norm.num_batches_tracked": np.array(7),
    }
    found = ops.from_torch_state(state)
    assert list(found) == ["fc.weight", "norm.running_var"]
    assert found["fc.weight"] is state["fc.weight"]


@pytest.mark.parametrize("gates", [1, 3, 4])
def test_gates_become_a_dimension(gates: int) -> None:
    weight_ih, weight_hh = np.arange(gates * 2 * 3).reshape(gates * 2, 3), np.zeros((gates * 2, 2))
    state = {
        "lstm.weight_ih_l1": weight_ih,
        "lstm.weight_hh_l1": weight_hh,
        "lstm.bias_ih_l1": weight_ih[:, 0],
    }
    found = ops.from_torch_state(state)
    assert list(found) == ["lstm.l1.weight_ih", "lstm.l1.weight_hh", "lstm.l1.bias_ih"]
    np.testing.assert_array_equal(found["lstm.l1.weight_ih"], weight_ih.reshape(gates, 2, 3))
    assert found["lstm.l1.bias_ih"].shape == (gates, 2)


def test_projections_of_attention_come_apart() -> None:
    rows = np.arange(6).reshape(6, 1)
    found = ops.from_torch_state(
        {"in_proj_weight": rows, "a.in_proj_bias": rows[:, 0], "a.out_proj.bias": rows[0]}
    )
    assert list(found) == [
        "q.weight",
        "k.weight",
        "v.weight",
        "a.q.bias",
        "a.k.bias",
        "a.v.bias",
        "a.out.bias",
    ]
    np.testing.assert_array_equal(found["k.weight"], [[2], [3]])


def test_what_has_no_parts_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"^from_torch_state: 'a\.in_proj_bias' is \(7,\), dimension 0 has no 3 equal",
    ):
        ops.from_torch_state({"a.in_proj_bias": np.ones(7)})
