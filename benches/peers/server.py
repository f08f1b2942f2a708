"""A fresh server with the module, on a port of its own, and what it says of itself."""
import contextlib
import os
import pathlib
import random
import shutil
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = os.environ.get("MORTISE_MODULE", str(ROOT / "target/release/libmortise.so"))
SERVER = os.environ.get("MORTISE_SERVER", "redis-server")


def free_port():
    """Below those that connections are made from, so that none takes it before the server does."""
    while True:
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", random.randrange(10_000, 20_000)))
            return one.getsockname()[1]


class Server:
    def __init__(self):
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix="mortise-peers-")
        self.process = subprocess.Popen(
            [SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder,
             "--enable-debug-command", "no", "--loadmodule", MODULE], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        for _ in range(6000):
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port))
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        else:
            self.close()
            raise SystemExit(f"{SERVER} does not start")
        self.replies = self.socket.makefile("rb")

    def say(self, words):
        """A command whose reply is one line."""
        self.socket.sendall(f"{words}\r\n".encode())
        return self.replies.readline()

    def fields(self, section):
        self.socket.sendall(f"INFO {section}\r\n".encode())
        length = int(self.replies.readline()[1:])
        text = self.replies.read(length + 2).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def calls(self, command):
        """How often the server was asked for that."""
        stats = {name.lower(): figures for name, figures in self.fields("commandstats").items()}
        return int(stats.get(f"cmdstat_{command}", "calls=0,").split(",")[0].removeprefix("calls="))

    def info(self):
        fields = self.fields("default")
        told = {name: int(fields[name]) for name in ("total_commands_processed", "connected_clients", "used_memory")}
        version = fields.get("valkey_version") or fields["redis_version"]
        return told | {"redis_version": version, "cpu": float(fields["used_cpu_sys"]) + float(fields["used_cpu_user"])}

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
