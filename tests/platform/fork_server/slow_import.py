"""Takes a while to import."""

import time

time.sleep(30)
