"""What pages say of the rest of the repository: links, pictures, names, figures, messages."""

import ast
import importlib.util
import json
import re
import statistics
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

import ops
import taskflow
from docs import accuracy
from docs.draw.__main__ import IDEAS
from docs.draw.blocks import DOCS, ROOT, pages
from docs.draw.pages import TIMELINES
from docs.draw.svg import DARK, LIGHT
from taskflow.cli.published import predict, read_published


@pytest.fixture(scope="module")
def links() -> ModuleType:
    spec = importlib.util.spec_from_file_location("links_of_pages", DOCS / "links.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_link_within_the_repository_is_dead(links: ModuleType) -> None:
    found = {page.name: dead for page in links.pages() if (dead := links.dead(page))}
    assert sum(len(links.links(page)) for page in links.pages()) > 100
    assert found == {}


def test_a_dead_link_is_found(links: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page, and more\n[a](no.md) [b](#a-page-and-more) [c](page.md#no) `[d](no.md)`\n"
    )
    assert links.dead(page) == ["no.md", "page.md#no"]


def test_links_that_lead_out_are_listed(links: ModuleType) -> None:
    assert len(links.external()) >= 10
    assert links.EXTERNAL.read_text(encoding="utf-8") == links.listed(), "run `make docs`"


def test_every_page_is_in_a_table_of_contents() -> None:
    named = {"index"}
    for page in DOCS.rglob("*.md"):
        for entries in re.findall(
            r"^```\{toctree\}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
        ):
            names = [line for line in entries.splitlines() if line and not line.startswith(":")]
            named |= {(page.parent / name).relative_to(DOCS).as_posix() for name in names}
    there = {
        page.relative_to(DOCS).with_suffix("").as_posix()
        for page in pages()
        if DOCS in page.parents
    }
    assert named == there


# -- pictures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idea", IDEAS, ids=lambda idea: idea.__name__)
def test_a_picture_of_the_idea_is_what_its_function_draws(idea) -> None:
    path = DOCS / "pictures" / f"{idea.__name__}.svg"
    assert path.read_text(encoding="utf-8") == idea().svg(), "run `make docs`"


def test_the_accuracy_of_predictions_is_that_of_the_rows() -> None:
    """Page and picture are made of the file of results, which has every row that is held."""
    result = json.loads(accuracy.RESULT.read_text(encoding="utf-8"))
    rows = result["rows"]
    sets = read_published()
    held = {(each.name, row.name): row.published for each in sets for row in each.row}
    assert {(row["set"], row["name"]): row["published"] for row in rows} == held
    text = accuracy.PAGE.read_text(encoding="utf-8")
    assert text == accuracy.page(text, result), "run `python docs/accuracy.py`"
    assert accuracy.PICTURE.read_text(encoding="utf-8") == accuracy.draw(sets, rows).svg()
    for each in sets:
        factors = [accuracy.factor(row) for row in accuracy.rows_of(each.name, rows)]
        assert each.median is None or statistics.median(factors) <= each.median
        assert sum(factor > each.tolerance for factor in factors) <= each.outside, each.name


def test_a_fitted_constant_improves_sets_that_it_was_not_fitted_to() -> None:
    """One a set at most; the file of results has each, and by it no other set is further off."""
    constants = json.loads(accuracy.RESULT.read_text(encoding="utf-8"))["constants"]
    held = {
        (each.name, c.what, c.machine): (c.value, c.without)
        for each in read_published()
        if (c := each.constant)
    }
    assert {
        (c["set"], c["what"], c["machine"]): (c["value"], c["without"]) for c in constants
    } == held
    for constant in constants:
        changes = [effect["without"] / effect["median"] for effect in constant["effects"]]
        assert min(changes) > 0.999 and max(changes) > 1.01


@pytest.mark.parametrize("name", ["MPT 125m, 8 A100 40 GB, 26 x 2,048", "AlexNet P100 x 4"])
def test_a_row_of_the_accuracy_page_is_what_is_predicted(name: str) -> None:
    [recorded] = [
        row
        for row in json.loads(accuracy.RESULT.read_text(encoding="utf-8"))["rows"]
        if row["name"] == name
    ]
    [row] = [row for each in read_published() for row in each.row if row.name == name]
    assert predict(row) == pytest.approx(recorded["model"], rel=0.01)


def test_every_picture_is_drawn_shown_and_described() -> None:
    files = {path.stem for path in (DOCS / "pictures").iterdir()}
    assert files == {idea.__name__ for idea in IDEAS} | TIMELINES.keys() | {accuracy.PICTURE.stem}
    shown = re.findall(
        r"!\[([^\]]+)\]\((?:\.\./)*pictures/(\w+)\.svg\)", "".join(p.read_text() for p in pages())
    )
    assert {name for _, name in shown} == files
    assert all(len(said) > 4 for said, _ in shown)
    assert len(IDEAS) == 10


@pytest.mark.parametrize("path", sorted((DOCS / "pictures").iterdir()), ids=lambda path: path.stem)
def test_a_picture_is_read_out_has_two_themes_and_asks_for_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    title = root.find("{*}title")
    assert root.get("role") == "img" and title is not None and title.text
    assert len(root.get("aria-label", "")) > len(title.text) + 20
    for theme in (LIGHT, DARK):
        assert all(f"--{name}:{value};" in text for name, value in theme.items())
    assert set(re.findall(r"var\(--(\w+)\)", text)) <= LIGHT.keys() == DARK.keys()
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_colours_of_the_site_are_those_of_the_pictures() -> None:
    css = (DOCS / "_static/site.css").read_text()
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        [block] = re.findall(rf'body\[data-theme="{name}"\] svg\.tf {{(.*?)}}', css, re.DOTALL)
        assert dict(re.findall(r"--(\w+): (#\w+);", block)) == theme


# -- reference ---------------------------------------------------------------------------------------------------------


def test_the_reference_has_every_public_name_once() -> None:
    text = "".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    names = re.findall(
        r"^\.\. (?:auto)?(?:class|function|data|module):: taskflow\.(\w+)$", text, re.MULTILINE
    )
    assert sorted(names) == sorted(taskflow.__all__)


def test_the_reference_has_every_family_of_operators_once() -> None:
    """A page of the site lists what `ops` takes from a folder (docs/conf.py)."""
    imports = (ROOT / "ops/__init__.py").read_text()
    found = re.findall(r"^ +from ops\.(\w+).* import \(?\s*(\w+) as \w+", imports, re.MULTILINE)
    families, imported = zip(*found, strict=True)
    listed = re.findall(r"^```\{family\} (\w+)$", (DOCS / "api/ops.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(set(families))
    assert {*imported, *taskflow.__all__} >= set(ops.__all__)  # some names are both packages'


# -- figures -----------------------------------------------------------------------------------------------------------


def figures() -> list[list[str]]:
    """The rows of the tables of performance.md: what, figure, command, file."""
    rows = [
        line.strip("|").split("|") for line in (DOCS / "performance.md").read_text().splitlines()
    ]
    return [[cell.strip() for cell in row] for row in rows if len(row) == 4 and "](" in row[3]]


def test_every_figure_stands_in_its_file_and_has_a_command() -> None:
    rows, command = figures(), ""
    assert len(rows) >= 30
    for what, figure, said, file in rows:
        [name] = re.findall(r"\]\(\.\./(benchmarks/results/[\w.-]+)\)", file)
        text = (ROOT / name).read_text()
        for number in re.findall(r"[+-]?\d[\d.]*%?", figure.removesuffix(" s")):
            whole = rf"(?<![\d.]){re.escape(number)}(?![\d])"
            assert re.search(whole, text), f"{what}: {number} is not in {name}"
        command = command if said == "the same" else said.strip("`")
        script = re.search(r"benchmarks[./](\w+)", command)
        assert command.startswith("taskflow ") or (
            script and (ROOT / "benchmarks" / f"{script[1]}.py").is_file()
        )


# -- messages ----------------------------------------------------------------------------------------------------------

SOURCES = ("tests/refused/*.py", "tests/mpi/test_refused.py", "tests/comm/*.py", "tests/peer/*.py")


def texts_of_tests() -> list[str]:
    """The texts in the tests of refusals; values that are put into one are left out."""
    trees = [
        ast.parse(path.read_text()) for pattern in SOURCES for path in sorted(ROOT.glob(pattern))
    ]
    found = [
        node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)
    ]
    return [text for text in found if isinstance(text, str)]


def test_every_message_of_troubleshooting_is_one_that_a_test_holds() -> None:
    lines = (DOCS / "troubleshooting.md").read_text().splitlines()
    entries = [
        line for line, after in pairwise(lines) if line.startswith("`") and after.startswith(": ")
    ]
    texts = texts_of_tests()
    assert len(entries) > 50
    for entry in entries:
        for message in re.findall(r"`([^`]+)`", entry):
            for part in (each for each in message.split("…") if len(each) > 3):
                assert any(part in text for text in texts), part
