"""`python -m txtopo.cli`, the same as `txtopo`."""

import sys

from txtopo.cli import main

if __name__ == "__main__":
    sys.exit(main())
