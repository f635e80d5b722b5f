"""The report of a plan, or of a run, as one HTML file that needs no network: to look at, to send to colleagues.

`data` gathers what a page shows, as compact columns of JSON; `html` puts them and what draws them into one file. What
draws is `assets/`: our own scripts, and uPlot for all axes, zoom and cursors.

uPlot (https://github.com/leeoniya/uPlot, MIT) was chosen since it draws series over time on a canvas, has hooks for
what it does not know (lanes of tasks), synchronises the cursors of several charts, is kept up since 2019, depends on
nothing, and takes 51 kB; the file in `assets/vendor` is that of its npm package 1.6.32, unchanged. Rejected: Apache
ECharts (1 MB in each report; its custom series takes seconds for 100,000 tasks), Plotly (3.5 MB; a shape in SVG for
each task), Vega and D3 (an element of the page for each mark), Bokeh (needs its own 1 MB of BokehJS).
"""

from taskflow.report.page.data import ReportInputs, report_data
from taskflow.report.page.html import save_page

__all__ = ["ReportInputs", "report_data", "save_page"]
