"""What fails on a GPU is told at once: a run on a borrowed one may be ended before pytest sums up."""


class AtOnce:
    """Prints each failure of a folder `gpu` when it comes."""

    def __init__(self, plugins):
        self._plugins = plugins

    def pytest_runtest_logreport(self, report):
        if report.failed and "/gpu/" in report.nodeid:
            said = f"{report.nodeid} ({report.when})\n{report.longreprtext}\n{report.capstdout}{report.capstderr}"
            reporter = self._plugins.getplugin("terminalreporter")
            reporter.write_line(f"\n{said}")
            reporter.flush()  # what ends the run may not


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # the process that reports
        config.pluginmanager.register(AtOnce(config.pluginmanager))
