"""Serves a GGUF file by llama-server, and prints "url http://HOST:PORT" when it is ready."""
import signal
import sys

import xllamacpp

p = xllamacpp.CommonParams()
p.model.path = sys.argv[1]
p.n_parallel = 16
p.n_ctx = 16 * 1024
p.kv_unified = True
p.cpuparams.n_threads = 2
p.cpuparams_batch.n_threads = 2
p.hostnames = ["127.0.0.1"]
p.port = 0
p.warmup = True
server = xllamacpp.Server(p)
print("url", server.listening_address, flush=True)
signal.pause()
