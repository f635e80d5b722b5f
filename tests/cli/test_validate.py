"""`taskflow machine --validate`: published figures, what was fitted to them, and the verdicts."""

import json
import re

import pytest

from taskflow import CostModel, MachineModel
from taskflow.cli import main, published, validate
from taskflow.cli.published import (
    COLLECTIVE_UNITS,
    FIGURES,
    PUBLISHED,
    TIMES,
    predict,
    read_published,
)

QUICK = ("all-reduce V100 x 8", "all-reduce H100 x 8, 4 hosts", "AlexNet K80", "AlexNet P100")


@pytest.fixture
def few(monkeypatch):
    """The command with a few rows, whose published figures are multiplied: `few({"AlexNet P100": 2})`."""
    presets = read_published()[0]

    def replace_rows(factors, order=QUICK[2:], **fields):
        rows = [row for row in presets.row if row.name in QUICK]
        for row in rows:
            row.published *= factors.get(row.name, 1)
        presets.row, presets.order = rows, [published.Ascending(list(order))]
        for name, value in fields.items():
            setattr(presets, name, value)
        monkeypatch.setattr(validate, "read_published", lambda: [presets])
        return rows

    return replace_rows


def test_every_row_has_a_source_and_a_unit_and_one_way_to_its_figure():
    sets = read_published()
    assert sets[0].name == "presets" and len({each.name for each in sets}) == len(sets) > 2
    for each in sets:
        assert len({row.name for row in each.row}) == len(each.row)
        names = {row.name for row in each.row}
        assert all(set(order.rows) <= names and len(order.rows) > 1 for order in each.order)
        for row in each.row:
            assert len(each.sources.get(row.source, row.source)) > 20 and row.published > 0
            units = (TIMES,) if row.against else COLLECTIVE_UNITS if row.size_bytes else FIGURES
            assert row.unit in units
            assert bool(row.size_bytes) != bool(row.model)


def test_a_constant_is_of_the_rows_that_it_was_fitted_to():
    """One a set at most, by the type; every preset's efficiency is fitted, or follows from one that is."""
    sets = read_published()
    for each in sets:
        assert bool(each.constant) == bool(each.fitted)
        for row in each.fitted:
            assert each.constant.serves(row) and row.machine not in each.constant.also
    constants = [each.constant for each in sets if each.constant]
    known = {name for c in constants for name in (c.machine, *c.also)}
    assert known == {"v100", "p100", "k80", "a100", "h100", "l4", "nccl"}


def test_what_follows_from_a_fitted_constant_does_follow():
    """P100's share is V100's; K80's two thirds of it; H200 and B200 have that of H100."""
    share = {
        name: MachineModel.preset(name).devices[0].compute_efficiency
        for name in ("v100", "p100", "k80", "h100", "h200", "b200")
    }
    assert share["p100"] == share["v100"] and share["h200"] == share["h100"] == share["b200"]
    assert share["k80"] == pytest.approx(share["v100"] * 2 / 3, rel=0.01)


def test_the_command_lists_what_was_fitted_and_what_that_does_to_other_sets(few, capsys):
    """P100 and K80 have no part in the fit of V100: with a burst's share they are further off."""
    few({})
    assert main(["machine", "--validate"]) == 0
    out = capsys.readouterr().out
    assert "compute_efficiency of v100 = 0.53, 0.91 without" in out
    line = next(line for line in out.splitlines() if "presets (p100, k80), rows: 2" in line)
    before, after = (float(text) for text in re.findall(r"by (\d\.\d+)", line))
    assert before > 1.2 > after


def test_a_constant_that_is_left_out_changes_what_it_is_of_alone():
    sets = {each.name: each for each in read_published()}
    slow = sets["A100 by size"].constant
    a100 = MachineModel.preset("a100")
    assert {p.hop_factor for p in slow.left_out(a100).protocols} == {1.0}
    assert slow.left_out(a100).devices == a100.devices
    burst = sets["llm-foundry A100"].constant.left_out(a100)
    assert burst.devices[0].compute_efficiency == pytest.approx(0.91)
    assert burst.protocols == a100.protocols


def test_rows_hold_and_the_status_says_so(few, capsys):
    few({})
    assert main(["machine", "--validate"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("all hold, and in order\n") and out.count("  holds") == len(QUICK)


@pytest.mark.parametrize(
    ("factor", "ratio"), [(0.5, "DOES NOT HOLD"), (2.0, "DOES NOT HOLD"), (1.01, "holds")]
)
def test_a_row_holds_between_two_bounds(few, capsys, factor, ratio):
    few({QUICK[1]: factor})
    assert main(["machine", "--validate"]) == (0 if ratio == "holds" else 1)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(QUICK[1]))
    assert ratio in line


def test_so_many_rows_may_be_outside_and_the_median_may_not(few, capsys):
    few({QUICK[1]: 2.0}, outside=1)
    assert main(["machine", "--validate"]) == 0
    few({}, median=1.01)
    assert main(["machine", "--validate"]) == 1
    assert "presets: the median row is off by 1." in capsys.readouterr().out


def test_what_is_not_in_order_does_not_hold(few, capsys):
    few({}, order=("AlexNet P100", "AlexNet K80"))
    assert main(["machine", "--validate"]) == 1
    assert "order: AlexNet P100 has " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "status"), [(ModuleNotFoundError("no 'ml_dtypes'"), 0), (RuntimeError("odd"), 1)]
)
def test_a_row_that_cannot_be_predicted_loses_no_other(few, monkeypatch, capsys, error, status):
    """What is not installed is left out; anything else is wrong."""
    bad, right = few({})[0], validate.predict

    def failing(row, without=None):
        if row is bad:
            if status == 0:  # as a model of a missing dtype fails
                raise ValueError("model") from error
            raise error
        return right(row, without)

    monkeypatch.setattr(validate, "predict", failing)
    assert main(["machine", "--validate", "--json"]) == status
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == len(QUICK) and str(error) in rows[0]["reason"]
    assert [row["model"] is None for row in rows] == [True, False, False, False]


def test_all_prints_every_set(few, monkeypatch, capsys):
    rows = few({})
    presets = validate.read_published()[0]
    other = published.PublishedSet("other", 1.3, None, 0, {}, None, [], rows[:1])
    monkeypatch.setattr(validate, "read_published", lambda: [presets, other])
    assert main(["machine", "--validate", "--all"]) == 0
    assert "\nother\n" in capsys.readouterr().out


def test_a_constant_that_is_off_shows():
    """A published figure is not what the model is made of: half of the efficiency gives about half of the images."""
    row = next(row for row in read_published()[0].row if row.name == "AlexNet P100")
    assert 1 / 1.3 < predict(row) / row.published < 1.3
    row.machine = "k80"
    assert predict(row) < 0.4 * row.published


def test_a_plan_by_degrees_has_names_by_pattern():
    """Recomputed are the layers' operators, but those that end a layer."""
    every = [row for each in read_published() for row in each.row if "stages" not in row.plan]
    row = next(row for row in every if row.plan.get("recomputed"))
    row.arguments |= {"batch": 8, "layers": 2, "hidden": 64, "heads": 4, "vocabulary": 64}
    row.arguments |= {"sequence": 32}
    graph = published.build_model(row.model, [f"{k}={v!r}" for k, v in row.arguments.items()])
    plan = published._plan_of(row.plan, graph, row.make_machine())
    assert "layer1.attention.q" in plan.recomputed and "layer1.add2" not in plan.recomputed
    assert all(name.startswith("layer") for name in plan.recomputed)
    assert predict(row) > 0


def test_small_windows_save_flops_in_float32_on_gpus_alone():
    """3 x 3: 4 times as fast, by Winograd's algorithm; TensorFloat-32 and CPUs do not save."""
    a100 = MachineModel.preset("a100").take(1)
    plain, saving = (CostModel.analytic(a100).rates.flops[k, 0] for k in (0, 4))
    assert saving == pytest.approx(4 * plain)
    for costs in (
        CostModel.analytic(a100, use_tf32=True),
        CostModel.analytic(MachineModel.preset("laptop")),
    ):
        assert costs.rates.flops[4, 0] == costs.rates.flops[0, 0]


def test_the_file_says_what_is_wrong(tmp_path):
    path = tmp_path / "presets.toml"
    text = (PUBLISHED / "presets.toml").read_text()
    path.write_text(text.replace("tolerance = 1.3", "tolerance = true"))
    with pytest.raises(ValueError, match=r"presets\.toml': 'tolerance' is true: expected 'float'"):
        read_published(tmp_path)
    path.write_text(text.replace('machine = "k80"\ndevices = 1', 'devices = "k80"', 1))
    with pytest.raises(ValueError, match=r"row 'Inception-v3 K80'"):
        read_published(tmp_path)
