"""A server for tests: answers 'ok' on GET /, and misbehaves as it is told. Standard library only."""

import argparse
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/die":
            os._exit(5)
        body = b'# TYPE served_total counter\nserved_total{path="/"} 7\n' if self.path == "/metrics" else b"ok"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM and SIGINT")
    parser.add_argument("--silent", action="store_true", help="never listen")
    parser.add_argument("--delay-s", type=float, default=0.0, help="listen so much later")
    parser.add_argument("--exit", type=int, help="print a line and exit with this code at once")
    parser.add_argument("--hidden-child", help="start a sleeper in a session of its own; its pid goes to this file")
    arguments = parser.parse_args()
    print("tiny server begins", flush=True)
    if arguments.exit is not None:
        print("cannot open the frobnicator", file=sys.stderr, flush=True)
        sys.exit(arguments.exit)
    if arguments.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if arguments.hidden_child:
        hide_a_child(arguments.hidden_child)
    time.sleep(arguments.delay_s)
    if arguments.silent:
        time.sleep(600)
    ThreadingHTTPServer((arguments.host, arguments.port), Answer).serve_forever()


def hide_a_child(file: str) -> None:
    """Double fork into a new session, ignoring SIGTERM, with an empty environment: as well hidden as it gets."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    if os.fork() == 0:
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env={})
        with open(file, "w") as written:
            written.write(str(child.pid))
        os._exit(0)
    os.wait()


if __name__ == "__main__":
    main()
