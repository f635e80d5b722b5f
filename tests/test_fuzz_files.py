"""Two thousand damaged files: `benchmarks/fuzz_files.py` does a hundred thousand."""

from benchmarks import fuzz_files


def test_every_damaged_file_is_refused_or_makes_sense(capsys):
    seen = fuzz_files.run(2000, seed=1)
    assert set(seen) == {"refused", "accepted"}, capsys.readouterr().out
    assert seen["accepted"] > 40 and seen["refused"] > 1200
