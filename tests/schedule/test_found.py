"""The schedule of a task graph's own pipeline: as good as the best policy, and within memory."""

from taskflow import reorder, search_schedule
from taskflow.schedule import Schedule, zb_h1
from taskflow.schedule.found import blocks_of, starts_of
from taskflow.schedule.pipeline import pipeline_of
from tests.refusals import assert_refused
from tests.schedule.cells import CellCosts
from tests.schedule.pipelines import both_ways, pipeline, straight, there_and_back, units


def test_a_searched_schedule_is_as_good_as_the_best_policy():
    """Of ZB-H1, which is optimal here; it is laid out as it was found."""
    for devices, parts in ((2, 4), (4, 4)):
        rows = pipeline(straight(devices), parts).rows
        schedule = search_schedule(rows, CellCosts(), seconds=2.0)
        assert units(rows, schedule) == 3 * parts + devices - 1


def test_a_search_begins_with_the_best_policy():
    """In no time: of a straight pipeline of eight devices (the search alone: 33), and of a V."""
    rows = pipeline(straight(8), 8).rows
    assert units(rows, search_schedule(rows, CellCosts(), seconds=0.0)) == 31
    rows = pipeline(there_and_back(8), 8).rows
    half = {"forward": 0.5, "backward": 0.5, "weight": 0.5}
    assert units(rows, search_schedule(rows, CellCosts(**half), seconds=0.0), **half) == 27.5


def test_lists_that_no_device_can_follow_have_no_starts():
    rows = pipeline(straight(2), 2).rows
    found, steps = blocks_of(rows, CellCosts()), zb_h1.schedule(pipeline_of(rows)).steps
    assert starts_of(found, Schedule(steps)).max() == units(rows, zb_h1) - 1
    assert starts_of(found, Schedule({0: steps[0][::-1], 1: steps[1]})) is None
    assert starts_of(found, Schedule({0: steps[0], 1: steps[1][:-1]})) is None


def test_a_schedule_with_less_memory():
    """One micro-batch in flight a device: one after the other."""
    rows = pipeline(straight(2), 4).rows
    found = blocks_of(rows, CellCosts())
    forward = [
        block for block, (phase, _) in zip(found.blocks, found.steps, strict=True) if phase == "F"
    ]
    tile = 4 * 8  # a sample of 4 numbers
    assert [block.span for block in found.blocks] == [1.0] * 6 and all(
        block.memory >= tile for block in forward
    )
    least = 3 * tile  # what the second cell reads, what it makes, and the gradient
    assert units(rows, search_schedule(rows, CellCosts(), memory=least, seconds=0.5)) > 13
    assert_refused(
        f"search_schedule: no schedule fits {least - 1} bytes a device; one micro-batch alone holds up to {least}",
        lambda: search_schedule(rows, CellCosts(), memory=least - 1, seconds=0.2),
    )


def test_a_file_gives_the_same_schedule(tmp_path):
    rows = pipeline(straight(2), 4).rows
    schedule = zb_h1.schedule(pipeline_of(rows))
    schedule.save(tmp_path / "zb.json")
    loaded = Schedule.load(tmp_path / "zb.json")
    assert loaded == schedule and loaded.name == "zb_h1"
    assert reorder(rows, CellCosts(), loaded).digest() == reorder(rows, CellCosts(), zb_h1).digest()


def test_a_search_is_not_longer_than_two_directions_by_hand():
    rows = pipeline(both_ways(4), 2).rows
    assert 6 * 2 <= units(rows, search_schedule(rows, CellCosts(), seconds=0.5)) <= 14
