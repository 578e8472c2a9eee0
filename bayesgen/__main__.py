"""`python -m bayesgen`: the same as the command `bayesgen`."""

import sys

from bayesgen.cli import main

if __name__ == "__main__":
    sys.exit(main())
