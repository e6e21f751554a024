"""A relay between clients and a server's socket that can break as a network does: on one side only."""

from __future__ import annotations

import selectors
import socket
import threading
from pathlib import Path
from types import TracebackType

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from sumaclock_dagster.settings import Settings


class Relay:
    """Listens in `folder` under the server's socket name. `url` leads through it."""

    def __init__(self, url: str, folder: Path) -> None:
        parts = conninfo_to_dict(url)
        name = f".s.PGSQL.{parts['port']}"
        self.url = make_conninfo(url, host=str(folder))
        self._server_path = str(Path(str(parts["host"])) / name)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / name))
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._servers: list[socket.socket] = []
        self._broken = threading.Event()
        self._mended = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"database_url": SecretStr(self.url)})

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, _type: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        for each in [*self._pairs, *self._servers, self._listener]:
            each.close()

    def break_client_sides(self) -> None:
        """Close the clients' sides of all connections. The server is told nothing: its sessions live on."""
        self._broken.set()
        assert self._mended.wait(5)

    def _run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        while not self._ended.is_set():
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._pass_on(key.fileobj)
            if self._broken.is_set() and not self._mended.is_set():
                for one in [each for each in self._pairs if each not in self._servers]:
                    self._drop(self._pairs[one])
                    self._drop(one)
                    one.close()
                self._mended.set()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server_path)
        self._servers.append(server)
        self._pairs |= {client: server, server: client}
        self._selector.register(client, selectors.EVENT_READ)
        self._selector.register(server, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        target = self._pairs.get(source)
        if target is None:
            return
        data = source.recv(65536)
        if data:
            target.sendall(data)
            return
        for end in (source, target):
            self._drop(end)
            end.close()

    def _drop(self, end: socket.socket) -> None:
        self._selector.unregister(end)
        del self._pairs[end]
