"""What systemd does with an installed unit, as far as a test in a root without systemd needs it."""

import os
import re
import shlex
import socket
import struct
import subprocess
import time
from pathlib import Path

# Until everything that a service says at its start is heard; a busy machine of two cores is far below it.
PATIENCE = 60


class Service:
    """Starts the ExecStart of a unit as the unit's user, and hears what it says to its service manager."""

    def __init__(self, root, unit, instance=""):
        self.root, self.heard = root, {}
        text = (root.path / "usr/lib/systemd/system" / unit).read_text().replace("%i", instance)
        self.options = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
        self.command = shlex.split(self.options["ExecStart"])
        self.make_state_directory()
        address = root.path / f"run/notify-{instance}"
        address.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(str(address))
        address.chmod(0o777)
        environment = {
            "PATH": "/usr/bin:/bin",
            "NOTIFY_SOCKET": f"/run/{address.name}",
            "WATCHDOG_USEC": str(int(self.options["WatchdogSec"]) * 1_000_000),
        }
        # User, group, NoNewPrivileges= and CapabilityBoundingSet= of the unit.
        user = [f"--reuid={self.options['User']}", f"--regid={self.options['Group']}", "--init-groups"]
        words = ["/usr/sbin/chroot", root.path, "setpriv", *user, "--no-new-privs", "--bounding-set=-all", *self.command]
        log = self.log.open("w")
        self.process = subprocess.Popen(words, env=environment, umask=int(self.options["UMask"], 8), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def log(self):
        return self.root.path / "run/log"

    def make_state_directory(self):
        folder = self.root.path / "var/lib"
        for name in Path(self.options["StateDirectory"]).parts:
            folder /= name
            folder.mkdir(exist_ok=True)
            folder.chmod(int(self.options["StateDirectoryMode"], 8))
            ids = self.root.run("sh", "-c", f"id -u {self.options['User']}; id -g {self.options['User']}").split()
            os.chown(folder, *map(int, ids))

    def hear(self, *wanted):
        """Takes what it says until each of these words was said."""
        until = time.monotonic() + PATIENCE
        while not set(wanted) <= self.heard.keys():
            self.socket.settimeout(max(until - time.monotonic(), 0.01))
            try:
                said, told, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(12))
            except TimeoutError:
                raise AssertionError(f"{wanted} was not all said, only {self.heard}; its log: {self.log.read_text()[-2000:]}") from None
            pid = struct.unpack("3i", told[0][2])[0]
            # NotifyAccess=main.
            assert pid == self.process.pid, f"{pid} speaks for {self.process.pid}"
            self.heard |= dict(line.split("=", 1) for line in said.decode().splitlines())

    def stop(self):
        """As systemd stops it: it has to end by itself within the time of the unit."""
        self.heard.clear()
        self.process.terminate()
        code = self.process.wait(int(self.options["TimeoutStopSec"]))
        self.hear("STOPPING")
        assert code == 0, f"it ended with {code}"
        self.socket.close()
