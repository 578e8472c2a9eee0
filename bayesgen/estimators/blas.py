"""BLAS held to one thread."""

from __future__ import annotations

import threading

from threadpoolctl import ThreadpoolController


class _OneBlasThread:
    """Hold BLAS to one thread; safe to enter from several threads, restored when the last one leaves."""

    def __init__(self):
        self._lock, self._inside, self._pools, self._limit = threading.Lock(), 0, None, None

    def __enter__(self):
        with self._lock:
            if self._inside == 0:
                self._pools = self._pools or ThreadpoolController()
                self._limit = self._pools.limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._inside += 1

    def __exit__(self, *exception):
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.__exit__(*exception)


# Many small products on several BLAS threads stall each other on busy cores, up to tenfold.
one_blas_thread = _OneBlasThread()
