"""`python -m seamark_evaluate.server`."""

import sys

from seamark_evaluate.server.serve import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
