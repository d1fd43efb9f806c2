"""A Debian with nothing in it, in name spaces that take everything away with them when the test ends."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

# In this environment the test runs within its name spaces.
INSIDE = "PACKAGE_TEST_INSIDE"
SPACES = ["--mount", "--net", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private", "--mount-proc"]
# The database of dpkg itself, its log and what its options are asked in; what it keeps of a package is not among them.
OF_DPKG = re.compile(r"(var/lib/dpkg/(status|status-old|available|lock|lock-frontend|triggers/.*)|var/log/dpkg\.log)$")
MOUNTED = {"proc", "run", "tmp"}


def enter():
    """Runs this program again in name spaces of its own, and ends with it."""
    os.environ[INSIDE] = "1"
    sys.exit(subprocess.run(["unshare", *SPACES, sys.executable, *sys.argv]).returncode)


def codename():
    return dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line).get("VERSION_CODENAME", "")


def archive(tools):
    """The root as a tar file, from where this machine has its own packages; made once."""
    name = codename()
    file = tools / f"{name}.tar"
    if file.exists():
        return file
    words = "$(CODENAME) $(COMPONENT) $(ORIGIN) $(SITE)"
    listed = subprocess.run(["apt-get", "indextargets", "--format", words, "Created-By: Packages"], capture_output=True, text=True, check=True)
    sites = [line.split()[3] for line in listed.stdout.splitlines() if line.split()[:3] == [name, "main", "Debian"]]
    if not sites:
        sys.exit(f"apt knows no archive of {name}")
    folder = tools / f"{name}.unpacked"
    subprocess.run(["rm", "-rf", folder], check=True)
    made = subprocess.run(["debootstrap", "--variant=minbase", name, folder, sites[0]], capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit(f"debootstrap: {(made.stdout + made.stderr)[-2000:]}")
    whole = file.with_suffix(".part")
    subprocess.run(["tar", "-C", folder, "--exclude=./var/cache/apt/archives/*.deb", "--exclude=./proc/*", "-cf", whole, "."], check=True)
    subprocess.run(["rm", "-rf", folder], check=True)
    whole.rename(file)
    return file


class Root:
    """One such Debian on a file system in memory."""

    def __init__(self, folder, tar):
        self.path = Path(folder)
        self.mount("root", self.path, "mode=755")
        with tarfile.open(tar) as packed:
            packed.extractall(self.path, filter="fully_trusted")
        subprocess.run(["mount", "--types", "proc", "proc", self.path / "proc"], check=True)

    def mount(self, name, where, options="size=64m"):
        """A file system of its own."""
        where.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--types", "tmpfs", "--options", options, name, where], check=True)

    def run(self, *words, code=0):
        """What a command in it says; it must end with this code."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(["chroot", self.path, *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        said = done.stdout + done.stderr
        if done.returncode != code:
            raise AssertionError(f"{' '.join(words)} ended with {done.returncode}: {said}")
        return said

    def seen(self):
        """Every path with what can be told of it but its times: two of these are equal when nothing was left."""
        found = {}
        for folder, folders, files in os.walk(self.path):
            if Path(folder) == self.path:
                folders[:] = [name for name in folders if name not in MOUNTED]
            for name in folders + files:
                file = Path(folder, name)
                path = str(file.relative_to(self.path))
                if not OF_DPKG.match(path):
                    found[path] = told(file)
        return found


def told(file):
    status = file.lstat()
    words = [f"{status.st_mode:o}", status.st_uid, status.st_gid]
    if file.is_symlink():
        words.append(os.readlink(file))
    elif file.is_file():
        words.append(hashlib.sha256(file.read_bytes()).hexdigest())
    return tuple(words)
