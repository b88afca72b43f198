"""Answers questions of one module of the tests, each in a fork: what the module imports is imported once.

Runs in a service's own environment. A line of standard input is a question: the name of a function, its arguments,
its environment variables and the file for its output, of which the last line is the answer in JSON. The exit code
says whether there is one; a question that takes too long ends by SIGALRM.
"""

import importlib
import json
import os
import signal
import sys
import traceback

LONGEST_S = 300
TRANSFORMERS = ("transformers.models.llama.modeling_llama", "transformers.models.auto.tokenization_auto")
"""What a module that asks models names in PRELOADED."""


def main(argv: list[str]) -> int:
    """Import the module, and what it names in PRELOADED; then answer until standard input ends."""
    module = importlib.import_module(argv[0])
    for name in getattr(module, "PRELOADED", ()):
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            answer(module, asked)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return 0


def answer(module, asked):
    """Call a function of the module with its output in a file, and end the process."""
    code = 1
    signal.alarm(LONGEST_S)
    try:
        os.environ.clear()
        os.environ.update(asked["environment"])
        file = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        print(json.dumps(getattr(module, asked["question"])(**asked["told"])))
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
