"""`python -m taskflow`."""

import sys

from taskflow.cli import main

sys.exit(main())
