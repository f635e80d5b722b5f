"""Megatron-Core's layout strings, by its documentation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow.bridges.layout import layout_text, parse_layout

DOCUMENTED = {
    "Et*3|(tt|)*29,m|L": ("Ettt", *["tt"] * 29, "m", "L"),
    "E|(t|)*3,m|m||L": ("E", "t", "t", "t", "m", "m", "", "L"),
    "E||t|L": ("E", "", "t", "L"),
    "Ett|((t|)*2t|)*2L": ("Ett", *["t", "t", "t"] * 2, "L"),
}


@pytest.mark.parametrize("text", DOCUMENTED)
def test_what_is_documented(text):
    assert parse_layout(text) == DOCUMENTED[text]


@given(st.lists(st.text("EtmL", max_size=4), min_size=1, max_size=9).map(tuple))
def test_what_is_written_is_read(layout):
    assert parse_layout(layout_text(layout)) == layout


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Et|x|L", "at 4, 'x' is no part of one"),
        ("Et|(t|*2L", "'(' is not closed"),
        ("Et)|L", "at 3, ')' closes nothing"),
        ("*3Et|L", "at 2, '*3' repeats nothing, or too much"),
        ("Et*3*2|L", "at 6, '*2' repeats nothing, or too much"),
        ("Et*0|L", "at 4, '*0' repeats nothing, or too much"),
        ("Et*99999999|L", "at 11, '*99999999' repeats nothing, or too much"),
    ],
)
def test_what_is_no_layout(text, why):
    with pytest.raises(ValueError) as refusal:
        parse_layout(text)
    assert str(refusal.value) == f"layout '{text}': {why}"
