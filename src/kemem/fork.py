"""Fork safety: threads, sockets and SQLite's file locks do not survive os.fork()."""

import ctypes
import os
import threading
import weakref
from typing import Self

from kemem.errors import Unavailable


class ProcessBound:
    """What only the process that first used it may use; a forked child is refused at once.

    An object that nobody used before the fork works in the child.
    """

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        instance = super().__new__(cls)
        instance.is_forked = instance._is_used = False
        _instances.add(instance)
        return instance

    is_forked: bool
    _is_used: bool

    def use(self) -> None:
        """Bind to this process; call it before taking any lock, which a fork may leave locked."""
        if self.is_forked:
            raise Unavailable(
                "this Memory was opened before a fork; open a new Memory in the child process"
            )
        self._is_used = True


def hold_across_fork(lock: threading.Lock) -> None:
    """Fork only while nobody holds this lock of the process, so that a child finds it free.

    What it guards is whole then, too: no import or cache is left half way by a lost thread.
    """
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )


_instances: "weakref.WeakSet[ProcessBound]" = weakref.WeakSet()


def _mark_forked() -> None:
    """Mark what the parent opened, and keep it for ever.

    Collecting it would close the parent's connections with locks that a lost thread may hold.
    """
    for instance in _instances:
        if instance._is_used:
            instance.is_forked = True
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(instance))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)
