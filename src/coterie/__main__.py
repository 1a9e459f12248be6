"""`python -m coterie`: the command, for where it is not on the path."""

import sys

from coterie.cli import main

sys.exit(main())
