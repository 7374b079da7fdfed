"""A plain TCP balancer: it hands each connection to the next server that answers."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread

Address = tuple[str, int]
_WAITS = (b"H\0\0\0\4", b"S\0\0\0\4")  # Flush and Sync: until then a server need not answer


class Balancer:
    """Connections in turn to some servers; counts how often clients of PostgreSQL waited."""

    def __init__(self, servers: Sequence[Address]) -> None:
        self._servers = list(servers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.round_trips = 0
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        for _ in self._servers:
            address = self._servers.pop(0)
            self._servers.append(address)
            with suppress(OSError):
                server = socket.create_connection(address)
                break
        else:
            client.close()
            return
        with client, server:
            back = Thread(target=self._copy, args=(server, client, False), daemon=True)
            back.start()
            self._copy(client, server, True)
            back.join()

    def _copy(self, source: socket.socket, sink: socket.socket, is_client: bool) -> None:
        with suppress(OSError):
            sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := source.recv(1 << 16):
                self.round_trips += sum(map(data.count, _WAITS)) if is_client else 0
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def balanced(servers: Sequence[Address]) -> Iterator[Balancer]:
    """A balancer that is gone afterwards."""
    balancer = Balancer(servers)
    try:
        yield balancer
    finally:
        balancer.close()
