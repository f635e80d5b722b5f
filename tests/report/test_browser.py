"""The page of a report in a real browser: zoom, selection, diff, what-if, theme, keyboard; no complaint, no network."""

import numpy as np
import pytest

from benchmarks.first_looks import save_gpt_page
from ops.models import gpt
from ops.models.digits import mlp
from taskflow import (
    CostModel,
    MachineModel,
    Plan,
    Trainer,
    data_parallel,
    model_parallel,
    search,
)
from taskflow.report.page import ReportInputs, report_data, save_page
from tests.browser import OpenPage, started

PRESET = MachineModel.preset("p100", nodes=2)
MACHINE = PRESET.with_rates(reserved_bytes=0, communicator_bytes=0)  # charts of tiny models
COSTS = CostModel.analytic(MACHINE)

pytestmark = pytest.mark.slow  # a browser starts in a second


@pytest.fixture(scope="module")
def browser():
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def data():
    """A plan of a small GPT on two hosts with a search, beside data parallelism."""
    graph = gpt.build(batch=8, sequence=32, layers=2, hidden=64, heads=2, vocabulary=100)
    found = search(graph, MACHINE, COSTS, proposals=30, seed=0)
    plain = Plan(data_parallel(graph, MACHINE))
    plan = Plan(model_parallel(graph, MACHINE))  # on all devices
    inputs = ReportInputs(
        "small </script> GPT", graph, MACHINE, COSTS, plan, "found", ("data parallel", plain), found
    )
    return report_data(inputs)


@pytest.fixture(scope="module")
def path(data, tmp_path_factory):
    save_page(found := tmp_path_factory.mktemp("page") / "plan.html", data)
    return found


@pytest.fixture
def opened(browser, path):
    """The page; that it complains of nothing and asks for nothing holds in every test."""
    found = OpenPage(browser, path)
    yield found
    found.close()


def canvas(opened, selector="#lanes canvas"):
    """A canvas as a picture, once what was asked for is drawn."""
    opened.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return opened.run(f"document.querySelector('{selector}').toDataURL()")


def test_the_page_shows_the_figures_of_its_data(opened, data):
    assert opened.text("h1") == "small </script> GPT"
    cards = opened.text("#summary")
    assert "a step, predicted" in cards and "memory of the fullest device" in cards
    assert (
        opened.run("STEPS.length") == 2 and opened.run("STEPS[0].count") == data["steps"][0]["rows"]
    )
    last = opened.run("(s => s.end[s.path[s.path.length - 1]] / s.seconds)(STEPS[0])")
    assert last == pytest.approx(1, abs=1e-5)
    assert len(opened.page.locator("nav a").all()) == 7


def test_dragging_zooms_all_charts_and_a_double_click_shows_the_whole_step(opened):
    before = canvas(opened)
    box = opened.page.locator("#lanes .u-over").bounding_box()
    mouse = opened.page.mouse
    mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 9)
    mouse.down()
    mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 9, steps=5)
    mouse.up()
    share = opened.run("page.range.map(x => x / shownStep().seconds)")
    assert share == pytest.approx([0.25, 0.5], abs=0.01)
    scales = opened.run("inTime.map(plot => [plot.scales.x.min, plot.scales.x.max])")
    assert len(scales) == 3 and all(
        each == pytest.approx(opened.run("page.range")) for each in scales
    )
    assert canvas(opened) != before and opened.run("page.task") == -1  # the drag was no click
    opened.page.locator("#lanes .u-over").dblclick(position={"x": 5, "y": 5})
    assert opened.run("page.range") is None
    opened.run("repaint()")
    assert "all of" in opened.text("#range")


def test_buttons_and_the_wheel_zoom(opened):
    opened.page.click("#zoom-in")
    assert opened.run("(page.range[1] - page.range[0]) / shownStep().seconds") == pytest.approx(0.5)
    opened.page.click("#zoom-out")
    assert opened.run("page.range") is None
    opened.page.locator("#lanes .u-over").hover(position={"x": 300, "y": 20})
    opened.page.keyboard.down("Control")
    opened.page.mouse.wheel(0, -100)
    opened.page.keyboard.up("Control")
    assert opened.run("page.range !== null")


def test_a_click_selects_a_task_and_its_operator(opened):
    task = opened.run(
        "shownStep().path.find(t => shownStep().sortOf(t) < 4 && shownStep().groupOf(t))"
    )
    at = opened.run(
        f"(l => [l.plot.valToPos(l.step.start[{task}] + (l.step.end[{task}] - l.step.start[{task}]) / 2, 'x'), "
        f"l.top[l.step.firstLane[{task}]] + 1.5])(shownLanes[0])"
    )
    before = canvas(opened)
    opened.page.locator("#lanes .u-over").click(position={"x": at[0], "y": at[1]})
    group = opened.run("page.group")
    assert group and group in opened.text("#selected")
    assert opened.page.locator(f'.vertex[aria-pressed="true"][data-name="{group}"]').count() == 1
    assert canvas(opened) != before


def test_an_operator_of_the_model_is_selected_by_mouse_and_keyboard(opened, data):
    name = data["model"]["vertices"][3]["name"]
    vertex = opened.page.locator(f'.vertex[data-name="{name}"]')
    vertex.click()
    assert opened.run("page.group") == name and name in opened.text("#selected")
    assert opened.page.locator("#operators tr.selected").count() == 1
    vertex.focus()
    opened.page.keyboard.press("Enter")
    assert opened.run("page.group") is None


def test_the_keyboard_walks_the_critical_path(opened):
    opened.page.locator("#lanes .lanes-box").focus()
    press = opened.page.keyboard.press
    press("n")
    assert opened.run("page.task === shownStep().path[0]")
    press("n")
    assert opened.run("page.task === shownStep().path[1]")
    press("p")
    assert opened.run("page.task === shownStep().path[0]")
    assert "on the critical path" in opened.text("#selected")
    press("ArrowDown")
    assert opened.run("page.task") != opened.run("shownStep().path[0]")
    for keys, share in (("+", 0.6), ("+", 0.36), ("-", 0.6)):
        press(keys)
        assert opened.run("(page.range[1] - page.range[0]) / shownStep().seconds") == pytest.approx(
            share
        )
    low = opened.run("page.range[0]")
    press("ArrowRight")
    assert opened.run("page.range[0]") > low
    press("0")
    press("Escape")
    assert opened.run("[page.range, page.group, page.task]") == [None, None, -1]


def test_tasks_are_coloured_by_operator(opened):
    before = canvas(opened)
    assert "gradients of activations" in opened.text("#colours")
    opened.page.select_option("#colour-by", "operator")
    assert opened.text("#colours") == "a hue for each operator" and canvas(opened) != before
    opened.page.click("#toggle-path")
    assert opened.page.get_attribute("#toggle-path", "aria-pressed") == "false"


def test_ticks_tell_neighbours_apart(opened):
    ticks = opened.run(
        "[timeTicks(null, [0.154, 0.1545, 0.155]), timeTicks(null, [0, 1e-6, 2e-6]), timeTicks(null, [0, 5])]"
    )
    assert ticks == [["154.0 ms", "154.5 ms", "155.0 ms"], ["0", "1 µs", "2 µs"], ["0", "5 s"]]


def test_the_diff_of_two_plans(opened, data):
    rows = opened.page.locator("#operators tbody tr")
    assert rows.count() == len(data["model"]["vertices"])
    others = [v for v in data["model"]["vertices"] if v["compared_split"] != v["split"]]
    assert len(others) > 0
    opened.page.check("#only-differences")
    assert rows.count() == len(others)
    assert "data parallel" in opened.text("#plan-difference") and "%" in opened.text(
        "#plan-difference"
    )
    opened.page.select_option("#beside", "1")
    assert opened.page.locator("#beside-lanes canvas").count() == 1
    assert "data parallel" in opened.text("#beside-lanes h3")
    opened.page.select_option("#step", "1")
    assert opened.run("shownStep().name") == "data parallel"


def test_columns_are_sorted(opened):
    header = opened.page.locator("#operators th", has_text="moves")
    header.locator("button").click()
    moved = opened.run(
        "[...document.querySelectorAll('#operators tbody tr')].map(r => r.dataset.name)"
    )
    by_bytes = opened.run(
        "Object.fromEntries(DATA.model.vertices.map(v => [v.name, v.bytes_moved]))"
    )
    assert [by_bytes[name] for name in moved] == sorted(by_bytes.values(), reverse=True)
    assert header.get_attribute("aria-sort") == "descending"


def test_what_if(opened, data):
    first = data["what_if"]["plans"][0]["points"]
    seconds = {(n, f): s for n, f, s in first}
    assert (
        opened.run("secondsAt(DATA.what_if.plans[0], asked.network, asked.flops)") == seconds[1, 1]
    )
    before = opened.text("#what-if-answer")
    opened.page.locator("#what-if-network").focus()
    for _ in range(3):
        opened.page.keyboard.press("ArrowRight")
    assert opened.run("asked.network") == 10
    assert (
        opened.run("secondsAt(DATA.what_if.plans[0], asked.network, asked.flops)") == seconds[10, 1]
    )
    assert opened.text("#what-if-answer") != before
    assert opened.page.locator("#what-if-network").get_attribute("aria-valuetext") == "10 times"
    assert opened.page.locator("#what-if-chart canvas").count() == 1


def test_memory_and_links(opened, data):
    step = data["steps"][0]
    device = opened.run("memoryDevice")
    assert step["memory"]["peak_in_use_bytes"][device] == max(step["memory"]["peak_in_use_bytes"])
    assert step["memory"]["alive"][device]["name"][0] in opened.text("#memory-alive")
    assert "data parallel" in opened.text(
        "#memory-chart .u-legend"
    )  # the other plan's memory beside it
    before = canvas(opened, "#memory-chart canvas")
    opened.page.select_option("#memory-device", str((device + 3) % len(MACHINE.devices)))
    assert step["memory"]["alive"][(device + 3) % 8]["name"][0] in opened.text("#memory-alive")
    other = (device + 3) % 8
    is_equal = step["memory"]["in_use_kib"][device] == step["memory"]["in_use_kib"][other]
    assert is_equal or canvas(opened, "#memory-chart canvas") != before
    assert opened.page.locator("#machine-picture .link").count() == len(
        opened.run("connections(shownStep())")
    )
    assert "between hosts" in opened.text("#links-table")


def test_plans_and_search(opened, data):
    assert opened.page.locator("#plans-table tbody tr").count() == len(data["choices"]["plans"])
    assert "this plan" in opened.text("#plans-table tr.selected")
    assert opened.page.locator("#pareto canvas").count() == 1
    assert data["choices"]["search"]["text"][:20] in opened.text("#search-course")


def test_dark_and_light(browser, path):
    opened = OpenPage(browser, path, dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = opened.run(ground)
    assert opened.run("document.documentElement.dataset.theme") == "dark"
    before = canvas(opened)
    opened.page.click("#theme")
    assert opened.run("document.documentElement.dataset.theme") == "light"
    assert opened.run(ground) != dark and canvas(opened) != before
    for theme in ("light", "dark"):
        opened.run(f"(setTheme('{theme}'), renderAll())")
        assert opened.run(CONTRAST) >= 4.5, theme
    opened.close()


# The least contrast of text on the ground of panels (WCAG 2.1, 1.4.3).
CONTRAST = """(() => {
  const parse = name => { const c = document.createElement('canvas').getContext('2d'); c.fillStyle = colour(name);
    c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3); };
  const light = name => parse(name).map(x => x / 255).map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, k) => sum + x * [0.2126, 0.7152, 0.0722][k], 0);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  return Math.min(...['ink', 'faint', 'accent', 'good', 'bad'].flatMap(a => ['panel', 'ground'].map(b => ratio(a, b))));
})()"""


def test_a_screen_reader_finds_its_way(opened):
    assert opened.run("document.documentElement.lang") == "en"
    unnamed = opened.run(
        "[...document.querySelectorAll('button, select, input, [role=img], [role=group], [role=region], .lanes-box')]"
        ".filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label') "
        "|| document.querySelector(`label[for='${e.id}']`))).map(e => e.outerHTML.slice(0, 80))"
    )
    assert unnamed == []
    assert opened.run("[...document.querySelectorAll('main > section')].every(s => s.getAttribute('aria-label') "
                      "|| document.getElementById(s.getAttribute('aria-labelledby')))")  # fmt: skip
    assert (
        opened.run("document.querySelectorAll('#lanes, #usage-chart, #memory-chart').length") == 3
    )
    opened.page.keyboard.press("Tab")
    assert opened.run("document.activeElement.className") == "skip"


def test_a_narrow_window_does_not_scroll_sideways(browser, path):
    opened = OpenPage(browser, path, width=420)
    assert opened.run("document.documentElement.scrollWidth") <= 420
    opened.close()


def test_a_measured_run_is_shown_over_its_prediction(browser, tmp_path):
    graph = mlp(batch=16)
    machine = MachineModel.local(devices=2, kind="cpu")
    trainer = Trainer(
        graph,
        machine=machine,
        strategy=data_parallel,
        costs=CostModel.analytic(machine),
        quiet=True,
    )
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.random((16, 64), dtype=np.float32),
        "t": rng.integers(0, 10, 16).astype(np.int32),
    }
    for _ in range(2):
        trainer.step(feeds)
    trainer.report(tmp_path / "run.html")
    opened = OpenPage(browser, tmp_path / "run.html")
    assert opened.run("[STEPS[0].role, STEPS[1].role, page.step, page.beside]") == [
        "plan",
        "measured",
        0,
        1,
    ]
    assert "measured over predicted" in opened.text("#summary")
    assert opened.run("STEPS[1].count") == len(trainer.task_graph)
    assert opened.page.locator("#beside-lanes canvas").count() == 1
    opened.close()
    trainer.step.close()


def test_gpt_on_64_h100_is_small(browser, tmp_path):
    """How fast it opens, `benchmarks/first_looks.py` says."""
    size = save_gpt_page(tmp_path / "gpt.html")
    opened = OpenPage(browser, tmp_path / "gpt.html")
    assert opened.run("STEPS[0].shown_devices.length") == 64
    opened.close()
    assert size <= 5e6
