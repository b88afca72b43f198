"""`python -m seamark.servers.attention`."""

import sys

from seamark.servers.attention.serve import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
