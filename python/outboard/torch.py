"""Outboard's back end of torch.distributed: collectives over shared memory.

A program uses it by `import outboard.torch` and `init_process_group("outboard")`, or, from
PyTorch 2.5 on and with the package installed, by `init_process_group()` alone. It must have
been started by `outboard train`.
"""

import atexit
import collections
import os
import queue
import sys
import threading
import time
import uuid
import weakref

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout
from torch.futures import Future

from outboard import _background, _store, limit, offload, profile, stall, threads
from outboard._messages import Messages, elements
from outboard._ranks import Connection, Error, Memory
from outboard._site import locate

NAME = "outboard"

# The numbers of internal/train/collective.
ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL, BARRIER = range(1, 7)

_ELEMENTS = {
    torch.float64: 1,
    torch.float32: 2,
    torch.float16: 3,
    torch.bfloat16: 4,
    torch.int64: 5,
    torch.int32: 6,
    torch.int16: 7,
    torch.int8: 8,
    torch.uint8: 9,
    torch.bool: 9,
}

_REDUCTIONS = {"SUM": 1, "AVG": 2, "MIN": 3, "MAX": 4}
_OTHER_REDUCTIONS = ("PRODUCT", "BAND", "BOR", "BXOR")


def _reduction(op):
    """Returns the number of a ReduceOp, which PyTorch's versions represent differently."""
    name = str(op).rsplit(".", 1)[-1].split(":")[0].strip("<> ")
    for known, number in _REDUCTIONS.items():
        if op == getattr(dist.ReduceOp, known, None) or name == known:
            return number
    name = next((other for other in _OTHER_REDUCTIONS if op == getattr(dist.ReduceOp, other, None)), name)
    raise Error(f"the reduction {name} is not supported: use SUM, AVG, MIN or MAX")


def _element(tensor):
    number = _ELEMENTS.get(tensor.dtype)
    if number is None:
        raise Error(f"tensors of {tensor.dtype} are not supported")
    _check_device(tensor)
    if tensor.layout != torch.strided:
        raise Error(f"tensors of layout {tensor.layout} are not supported by this call (all_reduce adds torch.sparse_coo): use to_dense()")
    return number


def _check_device(tensor):
    if tensor.device.type != "cpu":
        raise Error(f"tensors on {tensor.device} are not supported: move them to the CPU")


def _site():
    """Returns the line of the program that makes a call."""
    return locate(sys._getframe(1))[0]


def _nodes(store, rank, size):
    """Returns the number of each rank's node, for a job on several nodes."""
    if int(os.environ.get("OUTBOARD_NODES", "1")) < 2:
        return []
    store.set(f"outboard-node-{rank}", os.environ["OUTBOARD_NODE"])
    return [int(store.get(f"outboard-node-{r}")) for r in range(size)]


def _describe_group(store, rank, size):
    """Returns the name of a new group and the number of each rank's node."""
    known = limit.active.next_group() if limit.active is not None else None
    if known is not None:
        return known
    if rank == 0:
        store.set("outboard-group", uuid.uuid4().hex)
    return store.get("outboard-group").decode(), _nodes(store, rank, size)


# The most bytes of a call that the program's thread makes itself: for so few, passing the call to
# another thread and back takes longer than the call.
_DIRECT = 64 << 10

# The pieces of a large all-reduce that are in progress at once, each in memory of its own.
_PIECES = 4


_memberships = set()  # that this process has not ended


class _Membership:
    """A process's part in a group: its connections, and the thread that makes the group's calls in
    order. It holds no reference to the ProcessGroup, and ends with it or with the process.

    The thread also executes the callbacks of futures. If one makes a call, for which it may wait,
    another thread takes its place, and the thread ends with the callback.
    """

    def __init__(self, connection, memory, state):
        self._connection, self._memory, self._state = connection, memory, state
        self.messages = None  # the connection for messages, once there are some
        self.pending = 0  # calls in the queue; state guards it
        self._queue = queue.SimpleQueue()
        self._thread = _background.start(self._run)  # that makes the calls
        self._process = os.getpid()
        _memberships.add(self)

    def put(self, future, call):
        """Makes a call after those that have been put before. state is held."""
        self.pending += 1
        self._queue.put((future, call))
        if threading.current_thread() is self._thread:
            self._thread = _background.start(self._run)

    def _run(self):
        while True:
            item = self._queue.get()
            if item is None:
                return
            future, call = item
            began = time.perf_counter()
            try:
                finish, result = future.set_result, call()
                _record_communication("collective", began)
            except BaseException as e:  # wait() raises it in the program.
                finish, result = future.set_exception, e
            del item, call  # They refer to the ProcessGroup, which the program may drop now.
            stall.advance()
            with self._state:
                self.pending -= 1
            finish(result)
            del future, finish, result
            with self._state:
                if threading.current_thread() is not self._thread:
                    return

    def leave(self):
        """Leaves the group, to which nothing refers any more: no call is running. Other ranks are told
        that this one has not failed. It waits for nothing, since it may run in any thread."""
        if self._begin_end():
            if self.messages is not None:
                self.messages.leave()
            self._connection.leave()
            self._memory.close_file()

    def end(self):
        """Ends the connections, with the calls in progress."""
        if self._begin_end():
            if self.messages is not None:
                self.messages.end()
            self._connection.shutdown()

    def _begin_end(self):
        """Lets the thread end. Returns False if this process has no part in the group."""
        if self not in _memberships or os.getpid() != self._process:
            return False  # A child process shares the connection with its parent, and has none of the threads.
        _memberships.discard(self)
        self._queue.put(None)
        return True


def _end_memberships():
    for membership in list(_memberships):
        membership.end()
    _background.join()


atexit.register(_end_memberships)


class ProcessGroup(dist.ProcessGroup):
    """A group of ranks. Its collectives are made in order by one thread, beside the program; messages
    between two ranks wait for no other call.

    The program's thread sends the request of a small all-reduce itself if no other call is running,
    and receives the reply in wait. If it makes another call first, or asks for the future, the
    thread beside it receives the reply, so that a call without a waiting thread delays no other.
    """

    def __init__(self, store, rank, size, timeout=None):
        super().__init__(rank, size)
        path = os.environ.get("OUTBOARD_RANKS_SOCKET")
        if not path:
            raise Error("start the program by `outboard train --ranks N -- PROGRAM`")
        name, nodes = _describe_group(store, rank, size)
        self._rank, self._size = rank, size
        self._path, self._name, self._timeout = path, name, timeout
        self._connection, self._memory = Connection(path), Memory()
        joined = self._connection.request("join", group=name, rank=rank, size=size, nodes=nodes)
        self._connection.limit_waits(_seconds(timeout))
        self._piece = joined.get("piece", 0)  # in bytes; 0: calls are not divided
        if limit.active is not None:
            limit.active.add_group(self, name, nodes)
        self._works = _Works()
        self._state = threading.Lock()
        self._membership = _Membership(self._connection, self._memory, self._state)
        self._direct = None  # the last call beside the queue
        # destroy_process_group drops PyTorch's references to a group, and calls nothing.
        weakref.finalize(self, self._membership.leave).atexit = False

    def getBackendName(self):
        return NAME

    # PyTorch 2 names a group, and asks a back end in C++ for the name, which this group has not.

    def _set_group_name(self, name):
        self._group_name = name

    def _set_group_desc(self, description):
        self._group_description = description

    @property
    def group_name(self):
        return self._group_name

    @property
    def group_desc(self):
        return self._group_description

    def _enqueue(self, call, is_barrier=False):
        future = Future()
        if limit.active is not None and not limit.active.check_call(_site(), is_barrier):
            future.set_result(None)
            return _Work(self._works, future)
        with self._state:
            if self._direct is not None and not self._direct.done:
                self._membership.put(Future(), self._direct.complete)
            self._direct = None
            self._membership.put(future, call)
        return _Work(self._works, future)

    def _begin(self, start, tensors):
        """Makes a call beside the queue, if no other call is running. Returns its work, or None.

        start sends the request and returns the function that receives the reply.
        """
        if limit.active is not None:
            limit.active.check_call(_site())
        with self._state:
            if self._membership.pending or self._direct is not None and not self._direct.done:
                return None
            self._direct = direct = _Direct(start())
        return _DirectWork(self, direct, tensors)

    # Calls of the server. The tensors of a call lie behind each other in the memory.

    def _send_request(self, kind, size, fill, members, offset=0):
        if self._memory.reserve(max(offset + size, 8)):
            members["file"] = self._memory.fd
            self._view = torch.frombuffer(self._memory.map, dtype=torch.uint8)
        view = self._view[offset:] if offset else self._view
        fill(view)
        return view, self._connection.send(kind, offset=offset, **members)

    def _collective(self, operation, parts, results, reduction=0, root=0, site=""):
        """Makes a call with the elements of parts and copies the result to results."""
        self._start_collective(operation, parts, results, reduction, root, site)()

    def _all_reduce(self, tensor, reduction, site):
        """Reduces a tensor, a large one in pieces: while one is reduced, the next one is copied."""
        count = self._piece // tensor.element_size()
        if count == 0 or tensor.numel() <= count or not tensor.is_contiguous():
            self._collective(ALL_REDUCE, [tensor], [(0, tensor)], reduction=reduction, site=site)
            return
        flat, running = tensor.detach().view(-1), collections.deque()
        for i, first in enumerate(range(0, flat.numel(), count)):
            if len(running) == _PIECES:
                running.popleft()()
            # From the last place on, so that the first request reserves the memory of all.
            piece, at = flat[first : first + count], (_PIECES - 1 - i % _PIECES) * self._piece
            members = dict(whole=flat.numel(), first=first)
            running.append(self._start_collective(ALL_REDUCE, [piece], [(0, piece)], reduction, 0, site, at, members))
        while running:
            running.popleft()()

    def _all_reduce_sparse(self, tensor, reduction, site):
        """Adds a sparse tensor, such as the gradient of an embedding: all ranks gather the indices and
        values of all, in parts of the size of the largest one."""
        if reduction != _REDUCTIONS["SUM"]:
            raise Error(f"sparse tensors have no other reduction than SUM, at {site}")
        own = tensor.detach().coalesce()
        indices, values = own.indices(), own.values()
        counts = torch.empty(self._size, dtype=torch.int64)
        self._gather_all(torch.tensor([values.shape[0]]), counts, site)
        most = int(counts.max())
        if most == 0:
            return
        gathered = []
        for part in indices.t(), values:
            padded = torch.zeros(most, *part.shape[1:], dtype=part.dtype)
            padded[: part.shape[0]].copy_(part)
            whole = torch.empty(self._size, *padded.shape, dtype=part.dtype)
            self._gather_all(padded, whole, site)
            gathered.append(torch.cat([rows[:n] for rows, n in zip(whole, counts.tolist())]))
        total = torch.sparse_coo_tensor(gathered[0].t(), gathered[1], tensor.shape)
        with torch.no_grad():  # tensor.detach() would have indices of its own.
            tensor.copy_(total.coalesce())

    def _gather_all(self, part, whole, site):
        """Gathers the parts of all ranks, which have one size, in a whole tensor."""
        self._collective(ALL_GATHER, [part] * self._size, [(0, whole)], site=site)

    def _start_collective(self, operation, parts, results, reduction=0, root=0, site="", offset=0, members=()):
        """Sends a call's request. Returns the function that awaits the reply and copies the result.

        results has a pair (first element, tensor) for each tensor. The call uses the memory from
        offset on.
        """
        element, width = _element(parts[0]), parts[0].element_size()
        count = sum(p.numel() for p in parts)
        if reduction and parts[0].dtype == torch.bool:
            reduction = _reduction_of_bool(reduction)

        def fill(view):
            at = 0
            for p in parts:
                elements(view, at, p).copy_(p.detach())
                at += p.numel() * width

        members = dict(members, operation=operation, element=element, reduction=reduction, count=count, root=root, site=site)
        members["buffer"] = parts[0].data_ptr()
        view, number = self._send_request("call", count * width, fill, members, offset)

        def finish():
            self._connection.receive(number)
            for first, tensor in results:
                tensor.detach().copy_(elements(view, first * width, tensor))

        return finish

    # The methods that torch.distributed calls.

    def allreduce(self, tensors, opts):
        reduction, site = _reduction(opts.reduceOp), _site()

        def call():
            for t in tensors:
                if t.is_sparse:
                    self._all_reduce_sparse(t, reduction, site)
                else:
                    self._all_reduce(t, reduction, site)
            return tensors

        work = None
        if len(tensors) == 1 and profile.active is None and not tensors[0].is_sparse and tensors[0].numel() * tensors[0].element_size() <= _DIRECT:
            t = tensors[0]
            work = self._begin(lambda: self._start_collective(ALL_REDUCE, [t], [(0, t)], reduction, 0, site), tensors)
        return work or self._enqueue(call)

    def allreduce_coalesced(self, tensors, opts):
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors, opts):
        root, site = opts.rootRank, _site()

        def call():
            for t in tensors:
                self._collective(BROADCAST, [t], [(0, t)], root=root, site=site)
            return tensors

        return self._enqueue(call)

    def reduce(self, tensors, opts):
        reduction, root, site = _reduction(opts.reduceOp), opts.rootRank, _site()

        def call():
            for t in tensors:
                results = [(0, t)] if self._rank == root else []
                self._collective(ALL_REDUCE, [t], results, reduction=reduction, site=site)
            return tensors

        return self._enqueue(call)

    def allgather(self, outputs, inputs, opts=None):
        site = _site()
        for out, t in zip(outputs, inputs):
            _check_parts("all_gather", out, self._size, t)

        def call():
            for out, t in zip(outputs, inputs):
                n = t.numel()
                self._collective(ALL_GATHER, [t] * self._size, [(i * n, o) for i, o in enumerate(out)], site=site)
            return outputs

        return self._enqueue(call)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        # outputs has a list of tensors for each rank, allgather one for each tensor.
        return self.allgather([list(out) for out in zip(*outputs)], inputs, opts)

    def _allgather_base(self, output, input, opts=None):
        return self.allgather_into_tensor_coalesced([output], [input], opts)

    # The functional collectives of PyTorch 2 (DTensor, FSDP2) and its coalescing manager call these.

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        site = _site()
        for output, input in zip(outputs, inputs):
            _check_whole("all_gather", output, self._size, input)

        def call():
            for output, input in zip(outputs, inputs):
                self._collective(ALL_GATHER, [input] * self._size, [(0, output)], site=site)
            return outputs

        return self._enqueue(call)

    def gather(self, outputs, inputs, opts):
        root, site = opts.rootRank, _site()
        if self._rank == root:
            _check_parts("gather", outputs[0], self._size, inputs[0])

        def call():
            n = inputs[0].numel()
            out = outputs[0] if self._rank == root else []
            self._collective(ALL_GATHER, [inputs[0]] * self._size, [(i * n, o) for i, o in enumerate(out)], site=site)
            return outputs

        return self._enqueue(call)

    def scatter(self, outputs, inputs, opts):
        root, site = opts.rootRank, _site()
        if self._rank == root:
            _check_parts("scatter", inputs[0], self._size, outputs[0])

        def call():
            n = outputs[0].numel()
            parts = inputs[0] if self._rank == root else [outputs[0]] * self._size
            self._collective(BROADCAST, list(parts), [(self._rank * n, outputs[0])], root=root, site=site)
            return outputs

        return self._enqueue(call)

    def reduce_scatter(self, outputs, inputs, opts):
        reduction, site = _reduction(opts.reduceOp), _site()
        for out, parts in zip(outputs, inputs):
            _check_parts("reduce_scatter", parts, self._size, out)

        def call():
            for out, parts in zip(outputs, inputs):
                self._collective(REDUCE_SCATTER, list(parts), [(self._rank * out.numel(), out)], reduction=reduction, site=site)
            return outputs

        return self._enqueue(call)

    def _reduce_scatter_base(self, output, input, opts):
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        reduction, site = _reduction(opts.reduceOp), _site()
        for output, input in zip(outputs, inputs):
            _check_whole("reduce_scatter", input, self._size, output)

        def call():
            for output, input in zip(outputs, inputs):
                first = self._rank * output.numel()
                self._collective(REDUCE_SCATTER, [input], [(first, output)], reduction=reduction, site=site)
            return outputs

        return self._enqueue(call)

    def alltoall(self, outputs, inputs, opts=None):
        site = _site()
        for part in (*outputs, *inputs):
            _check_type("all_to_all", part, inputs[0])
        if len(outputs) != self._size or len(inputs) != self._size:
            raise Error(f"all_to_all has {len(inputs)} inputs and {len(outputs)} outputs: want one for each of {self._size} ranks")

        def call():
            self._exchange_parts(inputs, outputs, site)
            return outputs

        return self._enqueue(call)

    def alltoall_base(self, output, input, output_split_sizes=(), input_split_sizes=(), opts=None):
        site = _site()
        _check_type("all_to_all_single", output, input)
        if output_split_sizes or input_split_sizes:
            outputs = _split(output, output_split_sizes, self._size, "output")
            inputs = _split(input, input_split_sizes, self._size, "input")
        elif input.numel() != output.numel() or input.numel() % self._size:
            raise Error(
                f"all_to_all_single of {input.numel()} elements to {output.numel()} between {self._size} ranks: want as many, in equal parts, or the sizes of the parts"
            )
        else:
            outputs = inputs = None

        def call():
            if inputs is None:
                self._collective(ALL_TO_ALL, [input], [(0, output)], site=site)
            else:
                self._exchange_parts(inputs, outputs, site)
            return [output]

        return self._enqueue(call)

    def _exchange_parts(self, inputs, outputs, site):
        """Makes an all-to-all of parts whose sizes may differ: parts of the size of the largest one are
        exchanged, once all ranks know all sizes."""
        sizes = torch.empty(self._size, self._size, dtype=torch.int64)  # [i, j]: of rank i's part for rank j
        self._gather_all(torch.tensor([t.numel() for t in inputs]), sizes, site)
        for rank, out in enumerate(outputs):
            if out.numel() != sizes[rank, self._rank]:
                raise Error(
                    f"all_to_all: rank {rank} sends {sizes[rank, self._rank]} elements to rank {self._rank}, which expects {out.numel()}, at {site}"
                )
        n = int(sizes.max())
        if n == 0:
            return
        parts = inputs
        if any(t.numel() != n for t in inputs):
            padded = torch.zeros(self._size, n, dtype=inputs[0].dtype)
            for part, t in zip(padded, inputs):
                part[: t.numel()].copy_(t.detach().reshape(-1))
            parts = [padded]
        self._collective(ALL_TO_ALL, parts, [(i * n, o) for i, o in enumerate(outputs)], site=site)

    def barrier(self, opts=None):
        site = _site()
        return self._enqueue(lambda: self._connection.request("call", operation=BARRIER, site=site), is_barrier=True)

    def send(self, tensors, peer, tag=0):
        return self._start_message(Messages.send, tensors, peer, tag)

    def recv(self, tensors, peer, tag=0):
        return self._start_message(Messages.receive, tensors, peer, tag)

    def recv_anysource(self, tensors, tag=0):
        raise Error(f"a receive without a source is not supported, at {_site()}: name the rank that sends")

    def _start_message(self, start, tensors, peer, tag):
        site = _site()
        if limit.active is not None:
            limit.active.check_call(site)
        _check_device(tensors[0])  # Messages are bytes, so they may have any type.
        with self._state:
            if self._membership.messages is None:
                self._membership.messages = Messages(self._path, self._name, self._rank, self._size, _end_message)
        return _Work(self._works, start(self._membership.messages, tensors[0], peer, tag, site), self._timeout)


def _end_message(since):
    stall.advance()
    if since is not None:
        _record_communication("message", since)


def _record_communication(name, began):
    """Records that calls of the back end were in progress from began until now."""
    now = time.perf_counter()
    if threads.active is not None:
        threads.active.communicated(now - began)
    if profile.active is not None:
        profile.active.add("communication", name, began, now)


def _reduction_of_bool(number):
    """Returns the reduction of booleans, which are bytes of 0 or 1: their sum is their disjunction."""
    if number == _REDUCTIONS["AVG"]:
        raise Error("the average of torch.bool is not supported")
    return _REDUCTIONS["MAX"] if number == _REDUCTIONS["SUM"] else number


def _check_type(operation, tensor, other):
    if tensor.dtype != other.dtype:
        raise Error(f"{operation}: a tensor of {tensor.dtype} and one of {other.dtype}: want one type")


def _check_parts(operation, parts, ranks, tensor):
    """Raises an error unless there is a part for each rank, like tensor."""
    if len(parts) != ranks:
        raise Error(f"{operation}: {len(parts)} tensors for {ranks} ranks")
    for part in parts:
        _check_type(operation, part, tensor)
        if part.numel() != tensor.numel():
            raise Error(f"{operation}: tensors of {part.numel()} and of {tensor.numel()} elements: want the same size for all ranks")


def _check_whole(operation, whole, ranks, part):
    """Raises an error unless whole has room for the parts of all ranks."""
    _check_type(operation, whole, part)
    if whole.numel() != ranks * part.numel():
        raise Error(f"{operation}: a tensor of {whole.numel()} elements for {ranks} ranks of {part.numel()} each")


def _split(tensor, sizes, ranks, name):
    """Returns a tensor's parts along its first dimension, which have sizes or are equal."""
    rows = tensor.shape[0] if tensor.dim() else 0
    if not sizes and rows % ranks == 0:
        sizes = [rows // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != rows or min(sizes) < 0:
        raise Error(f"all_to_all_single: the {name} has {rows} rows, which are not divided into {list(sizes)} for {ranks} ranks")
    return tensor.detach().split(list(sizes))


class _Works:
    """The running calls of a group, the last 256 ones. PyTorch's C++ code holds only the C++ half of a
    Work: this keeps the Python half alive until the program has waited for it. Then the program owns
    it, with its tensors."""

    def __init__(self):
        self._works = {}  # by their identity, in order

    def add(self, work):
        self._works[id(work)] = work
        while len(self._works) > 256:
            self._works.pop(next(iter(self._works)), None)

    def discard(self, work):
        self._works.pop(id(work), None)


class _Work(dist._Work if hasattr(dist, "_Work") else dist.Work):
    """A running call, one of works. wait raises the error with which the call ended."""

    def __init__(self, works, future, timeout=None):
        super().__init__()
        self._works, self._future, self._timeout = works, future, timeout
        works.add(self)

    def wait(self, timeout=None):
        _await(self._future, timeout if _seconds(timeout) is not None else self._timeout)
        works, self._works = self._works, None
        if works is not None:
            works.discard(self)
        return True

    def is_completed(self):
        return self._future.done()

    def is_success(self):
        return self._future.done()

    def get_future(self):
        return _failing(self._future)

    def result(self):
        return _flatten(_value(self._future))


def _flatten(value):
    """Returns the tensors of a result in one list, as PyTorch's own back ends do."""
    if not isinstance(value, list):
        return []
    return [t for v in value for t in (_flatten(v) if isinstance(v, list) else [v])]


def _failing(future):
    """Returns a future that fails when another one has an exception.

    An exception of Future.set_exception is a value for C++ code such as DDP's, which then takes
    tensors of it and crashes. An exception of a callback is an error there, too.
    """
    return future.then(_value)


def _value(future):
    value = future.value()
    if isinstance(value, BaseException):
        raise value
    return value


def _seconds(timeout):
    """Returns the seconds of a time-out, None for none, which PyTorch also passes as 0."""
    seconds = timeout.total_seconds() if timeout is not None else 0
    return seconds if seconds > 0 else None


def _await(future, timeout):
    """Waits for a future, and raises the error with which it ended, or that of a time-out."""
    seconds = _seconds(timeout)
    if seconds is not None:
        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        if not ended.wait(seconds):
            raise Error(f"the call has not ended within {seconds:g} s")
    future.wait()


class _Direct:
    """A call whose request the program's thread has sent. The first thread that needs it to be
    complete receives the reply."""

    def __init__(self, finish):
        self._lock, self._finish = threading.Lock(), finish
        self.done, self.error = False, None

    def complete(self):
        """Waits for the reply. An error is kept for wait."""
        with self._lock:
            if self.done:
                return
            try:
                self._finish()
            except BaseException as e:  # wait() raises it in the program.
                self.error = e
            self._finish, self.done = None, True
        stall.advance()


class _DirectWork(dist._Work if hasattr(dist, "_Work") else dist.Work):
    """A running direct call."""

    def __init__(self, group, direct, tensors):
        super().__init__()
        self._group, self._direct, self._tensors = group, direct, tensors
        self._future = None
        group._works.add(self)

    def wait(self, timeout=None):
        if _seconds(timeout) is not None and not self._direct.done:
            _await(self._started(), timeout)
        self._direct.complete()
        group, self._group = self._group, None  # The program owns the group.
        if group is not None:
            group._works.discard(self)
        if self._direct.error is not None:
            raise self._direct.error
        return True

    def is_completed(self):
        if not self._direct.done:
            self._started()
        return self._direct.done

    def is_success(self):
        return self.is_completed() and self._direct.error is None

    def get_future(self):
        return _failing(self._started())

    def _started(self):
        """Returns the future of the thread that receives the reply."""
        if self._future is None:
            group, direct, tensors = self._group, self._direct, self._tensors

            def call():
                direct.complete()
                if direct.error is not None:
                    raise direct.error
                return tensors

            if group is None:  # wait has returned.
                future = Future()
                future.set_result(tensors)
                return future
            self._future = group._enqueue(call)._future
        return self._future

    def result(self):
        return _flatten(self._tensors)


def pipeline(layers, loss, micro_batches=None, **options):
    """Returns this rank's stage of a model: see outboard.pipeline.Pipeline."""
    from outboard.pipeline import Pipeline  # It needs this module's back end first.

    return Pipeline(layers, loss, micro_batches, **options)


def _create(store, rank, size, timeout):
    # Without a time-out of the program's, PyTorch passes its own, although ranks that are lost are
    # reported and others may take any time.
    return ProcessGroup(store, rank, size, timeout if timeout != default_pg_timeout else None)


def register():
    """Registers the back end with torch.distributed; from PyTorch 2 on as that of the CPU."""
    if NAME.upper() in dir(dist.Backend):
        return
    try:
        dist.Backend.register_backend(NAME, _create, devices=["cpu"])
    except TypeError:  # PyTorch 1.13
        dist.Backend.register_backend(NAME, _create)
    defaults = getattr(dist.Backend, "default_device_backend_map", None)
    if defaults is not None and os.environ.get("OUTBOARD_RANKS_SOCKET"):
        defaults["cpu"] = NAME


register()
_store.protect_by_environment()
profile.start_by_environment()
stall.start_by_environment()
offload.start_by_environment()
threads.start_by_environment()
limit.start_by_environment()
