"""The numbered examples: short, and each runs and says what it is meant to show. On two ranks: test_console.py."""

import re
import runpy
from pathlib import Path

import pytest

from tests.hidden import skip_without

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "01_first_model.py": r"accuracy on held-out images: 0\.9",
    "02_strategy_by_hand.py": r"alone .* losses 2\.3186.. 2\.2000..(.*\n)*mixed .* losses 2\.3186.. 2\.2000..",
    "03_search.py": r"searched +1\.\d+ ms",
    "04_custom_operator.py": r"smooth split along t into 3: right\n(.*\n)*energy split along t into 3: right",
    "05_mpirun.py": r"fc1\.weight is \(64, 20\)",
    "06_zero_and_tensor_parallel.py": r"ZeRO .* 12\.61 MB moved, +5\.52 MB",
    "07_mixture_of_experts.py": r"experts +step 30: .* dropped\nall-to-all: experts\.dispatch in 12 copies",
    "09_pipeline.py": r"1F1B +loss 0\.335840, +96\.7 ms predicted, .* 58 kB(.*\n)*ZB-H1 +loss 0\.335840, +90\.1 ms",
    "10_recompute_fsdp.py": r"parallel loss (6\.3\d+): 2592 kB kept, 7850 kB(.*\n)+\+ FSDP .* \1: +648 kB kept, 2223",
    "11_gan.py": r"step 1500: discriminator\.loss [01]\.\d+, generator\.loss [01]\.\d+, radius of made points [01]\.",
    "08_heat_equation.py": r"heat 0\.404732 after 1 step, (0\.\d+) after 200; exact \1",
}


def test_all_are_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("[0-9]*.py")} == set(SAYS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) <= 80
    skip_without((EXAMPLES / name).read_text())
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert re.search(SAYS[name], capsys.readouterr().out)
