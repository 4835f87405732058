"""The files of a job's dataset, read into memory by the node.

    from outboard import data

    for name, content in data.stream(data.names()):      # in any order of names
        pixels = torch.frombuffer(content, dtype=torch.uint8)

A job with `--dataset NAME --stream` has no folder with its dataset: the node fetches chunks,
verifies them, keeps them for all ranks and for later jobs, and copies the bytes that a rank reads
into memory that it shares with the rank. It fetches the next chunks while the rank computes. With a
folder (--dataset alone, or OUTBOARD_DATA set by hand) the same calls read its files.

The content that read and stream return is valid until the next read of the same thread's reader:
copy it to keep it.
"""

import json
import os
import threading

from outboard._ranks import Connection, Error, Memory

# The most names, and characters of names, of the files to be read next that a request states.
_AHEAD, _AHEAD_TEXT = 16, 4096


class Reader:
    """A connection that reads files, one at a time. Each thread needs its own."""

    def __init__(self):
        self._sizes, self._folder = _sizes(), os.environ.get("OUTBOARD_DATA")
        if self._sizes is None and not self._folder:
            raise Error("this program has no dataset: start it by `outboard train --device SELECTOR --dataset NAME --stream`")
        self._connection, self._memory = None, Memory()

    def names(self):
        """Returns the names of all files, relative to the dataset's folder, in its order."""
        if self._sizes is not None:
            return list(self._sizes)
        found = []
        for folder, folders, files in os.walk(self._folder):
            folders.sort()
            found += [os.path.relpath(os.path.join(folder, f), self._folder) for f in files]
        return sorted(found)

    def size(self, name):
        """Returns the bytes of a file."""
        if self._sizes is None:
            return os.path.getsize(os.path.join(self._folder, name))
        if name not in self._sizes:
            raise Error(f"the dataset has no file {name!r}")
        return self._sizes[name]

    def read(self, name, at=0, size=None, next=()):
        """Returns bytes of a file as a memoryview: all bytes from at on, or size of them.

        next are the names of the files that are read after this one.
        """
        size = self.size(name) - at if size is None else size
        if size < 0:
            raise Error(f"{name!r} has no byte {at}")
        if self._sizes is None:
            return self._read_file(name, at, size)
        if self._connection is None:
            self._connection = Connection(os.environ["OUTBOARD_RANKS_SOCKET"])
        new = self._memory.reserve(max(size, 1))
        self._connection.request(
            "read", file=self._memory.fd if new else None, name=name, at=at, offset=0, bytes=size, next=_ahead(next)
        )
        return memoryview(self._memory.map)[:size]

    def _read_file(self, name, at, size):
        with open(os.path.join(self._folder, name), "rb") as f:
            f.seek(at)
            content = bytearray(size)
            if f.readinto(content) != size:
                raise Error(f"{name!r} has fewer than {at + size} bytes")
        return memoryview(content)

    def stream(self, names):
        """Yields (name, content) of files in the order of names, and fetches them ahead."""
        names = list(names)
        for i, name in enumerate(names):
            yield name, self.read(name, next=names[i + 1 : i + 1 + _AHEAD])


_readers = threading.local()


def _reader():
    """Returns the reader of this thread; a forked process gets its own."""
    if getattr(_readers, "process", None) != os.getpid():
        _readers.reader, _readers.process = Reader(), os.getpid()
    return _readers.reader


def names():
    """Returns the names of all files of the job's dataset."""
    return _reader().names()


def size(name):
    """Returns the bytes of a file of the job's dataset."""
    return _reader().size(name)


def read(name, at=0, size=None, next=()):
    """Returns bytes of a file: see Reader.read."""
    return _reader().read(name, at, size, next)


def stream(names):
    """Yields (name, content) of files: see Reader.stream."""
    return _reader().stream(names)


def _sizes():
    """Returns the size of each file of a dataset that is read through the node, else None."""
    path = os.environ.get("OUTBOARD_DATASET")
    if not path:
        return None
    with open(path) as f:
        return {file["name"]: file["size"] for file in json.load(f)}


def _ahead(names):
    """Returns the first names, as many as a request may have."""
    chosen, text = [], 0
    for name in list(names)[:_AHEAD]:
        text += len(name)
        if text > _AHEAD_TEXT:
            break
        chosen.append(name)
    return chosen
