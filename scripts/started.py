"""Programs that the checking scripts start on this machine, ask over HTTP and end again."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

# How long a program may take to become ready; a busy machine of two cores is far below it.
PATIENCE = 60
# How long one may take to end before it is killed.
GRACE = 15


class Started:
    """Started programs with one log; left with `with`, they are ended, and the log is shown if something went wrong."""

    def __init__(self, log):
        self.path, self.log, self.processes = log, open(log, "w", encoding="utf-8"), []

    def start(self, *command):
        process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.log.close()
        if kind is not None:
            print(self.path.read_text(encoding="utf-8", errors="replace")[-4000:])


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(port, path, body=None, **query):
    """The text of an answer, that to a wrong question included; anything else but 200 is an OSError: not ready yet."""
    url = f"http://127.0.0.1:{port}{path}" + ("?" + urllib.parse.urlencode(query) if query else "")
    headers = {"Content-Type": "application/json"} if body else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        if error.code not in (400, 422):
            raise
        return error.read().decode()


def wait_for(what, process, condition):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"waiting for {what}: the process has ended with {process.returncode}")
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"{what}: not within {PATIENCE} s")
