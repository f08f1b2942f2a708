"""A fresh server with the module, on a port of its own, and what it says of itself."""
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = os.environ.get("MORTISE_MODULE", str(ROOT / "target/release/libmortise.so"))
SERVER = os.environ.get("MORTISE_SERVER", "redis-server")


class Server:
    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = tempfile.mkdtemp(prefix="mortise-peers-")
        self.process = subprocess.Popen(
            [SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder,
             "--enable-debug-command", "no", "--loadmodule", MODULE], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        for _ in range(500):
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

    def info(self):
        self.socket.sendall(b"INFO\r\n")
        length = int(self.replies.readline()[1:])
        text = self.replies.read(length + 2).decode()
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        told = {name: int(fields[name]) for name in ("total_commands_processed", "connected_clients", "used_memory")}
        version = fields.get("valkey_version") or fields["redis_version"]
        return told | {"redis_version": version, "cpu": float(fields["used_cpu_sys"]) + float(fields["used_cpu_user"])}

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
