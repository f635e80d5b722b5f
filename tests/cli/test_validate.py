"""`taskflow machine --validate`: published figures, what was fitted to them, and the verdicts."""

import pytest

from taskflow import CostModel, MachineModel
from taskflow.cli import main, validate
from taskflow.cli.validate import PUBLISHED, predict, read_published

QUICK = ("all-reduce V100 x 8", "all-reduce H100 x 8, 4 hosts", "AlexNet K80", "AlexNet P100")


@pytest.fixture
def few(monkeypatch, tmp_path):
    """The command with a few rows, whose published figures are multiplied: `few(AlexNet P100=2)`."""
    full = read_published()

    def replace_rows(factors, order=QUICK[2:]):
        rows = [row for row in full.row if row.name in QUICK]
        for row in rows:
            row.published *= factors.get(row.name, 1)
        full.row, full.order = rows, [validate.Ascending(list(order))]
        monkeypatch.setattr(validate, "read_published", lambda: full)

    return replace_rows


def test_every_row_has_an_address_and_a_unit():
    published = read_published()
    assert len({row.name for row in published.row}) == len(published.row) >= 12
    for row in published.row:
        assert "https://" in published.sources.get(row.source, row.source)
        assert row.unit in ("bus GB/s", "images/s", "tokens/s", "s") and row.published > 0
        assert bool(row.size_bytes) != bool(row.model)
    names = {row.name for row in published.row}
    assert all(set(order.rows) <= names and len(order.rows) > 1 for order in published.order)


def test_few_constants_are_fitted_each_to_two_rows_or_more():
    published = read_published()
    assert 2 * len(published.constant) < len(published.row)
    fitted = [row.name for constant in published.constant for row in published.rows_of(constant)]
    assert all(len(published.rows_of(constant)) >= 2 for constant in published.constant)
    assert sorted(fitted) == sorted(row.name for row in published.row if row.fit)
    assert len(fitted) < len(published.row), "some rows are left out of the fit"


def test_rows_hold_and_the_status_says_so(few, capsys):
    few({})
    assert main(["machine", "--validate"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("all within 1.3 times, and in order\n") and out.count(" holds, ") == len(
        QUICK
    )


@pytest.mark.parametrize(
    ("factor", "ratio"), [(0.5, "DOES NOT HOLD"), (2.0, "DOES NOT HOLD"), (1.01, "holds")]
)
def test_a_row_holds_between_two_bounds(few, capsys, factor, ratio):
    few({QUICK[1]: factor})
    assert main(["machine", "--validate"]) == (0 if ratio == "holds" else 1)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(QUICK[1]))
    assert ratio in line


def test_what_is_not_in_order_does_not_hold(few, capsys):
    few({}, order=("AlexNet P100", "AlexNet K80"))
    assert main(["machine", "--validate"]) == 1
    assert "order: AlexNet P100 has " in capsys.readouterr().out


def test_a_constant_that_is_off_shows():
    """A published figure is not what the model is made of: half of the efficiency gives about half of the images."""
    row = next(row for row in read_published().row if row.name == "AlexNet P100")
    assert 1 / 1.3 < predict(row) / row.published < 1.3
    row.machine = "k80"
    assert predict(row) < 0.4 * row.published


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
    path = tmp_path / "published.toml"
    path.write_text(PUBLISHED.read_text().replace("tolerance = 1.3", "tolerance = true"))
    with pytest.raises(
        ValueError, match=r"published\.toml': 'tolerance' is true: expected 'float'"
    ):
        read_published(path)
