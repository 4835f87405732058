"""Cases that tritonclient and a stub generated from the published protocol pass against a node
with the models that test/e2e/modelclients_test.go pushes.

Usage: tensors.py GRPC HTTP [shared-memory-refused], with HOST:PORT of gRPC and of REST. One line for
each case. With the third argument the node must refuse shared memory at the address of gRPC.
"""
import os
import sys
import threading

import grpc
import numpy as np
import tritonclient.grpc as tg
import tritonclient.http as th
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException, np_to_triton_dtype
from tritonclient.utils import shared_memory as shm

address, http = sys.argv[1], sys.argv[2]
refused = sys.argv[3:] == ["shared-memory-refused"]  # at addresses other than that of --models
key = {"authorization": "Bearer " + os.environ["OUTBOARD_KEY"]} if "OUTBOARD_KEY" in os.environ else {}
api = tg.InferenceServerClient(address)
rest = th.InferenceServerClient(http)
# A stub as a user generates it from the published grpc_service.proto.
stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(address))
metadata = tuple(key.items())
failed = []

# Models identity_TYPE return their input "x" [batch, 2] as "y".
TYPES = {"BOOL": np.bool_, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8, "UINT16": np.uint16,
         "UINT32": np.uint32, "UINT64": np.uint64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_}


def case(f):
    try:
        f()
        print("ok  ", f.__name__)
    except Exception as e:  # a case may fail in any way
        failed.append(f.__name__)
        print("FAIL", f.__name__, type(e).__name__, str(e)[:300])


def value(name):
    if name == "BYTES":
        return np.array([[b"a\xff", b""], [b"long" * 100, "\u00e9".encode()]], dtype=np.object_)
    return np.array([[0, 1], [1, 100 if name != "BOOL" else 0]]).astype(TYPES[name])


def infer(client, module, model, x, name="x", **more):
    i = module.InferInput(name, list(x.shape), np_to_triton_dtype(x.dtype))
    i.set_data_from_numpy(x)
    return client.infer(model, [i], headers=dict(key), **more)


def refuses(code, f):
    try:
        f()
    except InferenceServerException as e:
        assert code in (e.status() or ""), e
        return e.message()
    except grpc.RpcError as e:
        assert code in str(e.code()), e
        return e.details()
    raise AssertionError("no error")


@case
def triton_health():
    assert api.is_server_live(headers=dict(key)) and api.is_server_ready(headers=key) and api.is_model_ready("mlp", headers=key)
    assert not api.is_model_ready("none", headers=dict(key))
    assert rest.is_server_live(headers=dict(key)) and rest.is_model_ready("mlp", headers=key)


@case
def triton_metadata():
    s = api.get_server_metadata(headers=dict(key))
    assert s.name == "outboard" and "statistics" in s.extensions
    m = api.get_model_metadata("mlp", headers=dict(key))
    assert m.platform == "onnx_onnxv1" and list(m.inputs[0].shape) == [-1, 784] and m.outputs[0].datatype == "FP32"
    assert rest.get_model_metadata("mlp", headers=dict(key))["versions"] == list(m.versions)


@case
def triton_config():
    c = api.get_model_config("mlp", headers=dict(key)).config
    assert c.name == "mlp" and c.max_batch_size == 32 and list(c.input[0].dims) == [784] and c.input[0].data_type == 11
    assert rest.get_model_config("mlp", headers=dict(key))["max_batch_size"] == 32


@case
def triton_infer():
    x = np.random.default_rng(1).random((3, 784), dtype=np.float32)
    a = infer(api, tg, "mlp", x, "input", request_id="7")
    b = infer(rest, th, "mlp", x, "input")
    assert a.get_response().id == "7" and a.as_numpy("output").shape == (3, 10)
    assert np.array_equal(a.as_numpy("output"), b.as_numpy("output"))
    single = np.concatenate([infer(api, tg, "mlp", x[i:i + 1], "input").as_numpy("output") for i in range(3)])
    assert np.allclose(single, a.as_numpy("output"), atol=1e-5)


@case
def triton_every_type():
    for name in TYPES:
        x = value(name)
        for client, module in ((api, tg), (rest, th)):
            y = infer(client, module, "identity_" + name.lower(), x).as_numpy("y")
            assert y.dtype == x.dtype or name == "BYTES", (name, y.dtype)
            assert np.array_equal(x, y), (name, x, y)


@case
def triton_outputs_and_classification():
    x = np.zeros((1, 784), np.float32)
    out = tg.InferRequestedOutput("output", class_count=3)
    y = infer(api, tg, "mlp", x, "input", outputs=[out]).as_numpy("output")
    assert y.shape == (1, 3) and b":" in y[0][0]


@case
def triton_async():
    done, results = threading.Event(), []

    def answer(result, error):
        results.append((result, error))
        if len(results) == 8:
            done.set()
    i = tg.InferInput("input", [1, 784], "FP32")
    i.set_data_from_numpy(np.zeros((1, 784), np.float32))
    for _ in range(8):
        api.async_infer("mlp", [i], answer, headers=dict(key))
    assert done.wait(60) and all(e is None for _, e in results)


@case
def triton_stream():
    client, results, done = tg.InferenceServerClient(address), [], threading.Event()

    def answer(result, error):
        results.append((result, error))
        if len(results) == 5:
            done.set()
    client.start_stream(answer, headers=dict(key))
    i = tg.InferInput("input", [1, 784], "FP32")
    i.set_data_from_numpy(np.zeros((1, 784), np.float32))
    for n in range(5):
        client.async_stream_infer("none" if n == 2 else "mlp", [i], request_id=str(n))
    assert done.wait(60)
    client.stop_stream()
    client.close()
    assert [e is None for _, e in results] == [True, True, False, True, True]
    assert [r.get_response().id for r, e in results if e is None] == ["0", "1", "3", "4"]


@case
def triton_repository():
    assert "mlp" in [m.name for m in api.get_model_repository_index(headers=dict(key)).models]
    api.unload_model("mlp", headers=dict(key))
    api.load_model("mlp", headers=dict(key))
    assert [m.state for m in api.get_model_repository_index(headers=dict(key)).models if m.name == "mlp"] == ["READY"]
    assert api.is_model_ready("mlp", headers=dict(key))
    refuses("NOT_FOUND", lambda: api.load_model("none", headers=dict(key)))


@case
def triton_statistics():
    infer(api, tg, "mlp", np.zeros((1, 784), np.float32), "input")
    s = api.get_inference_statistics("mlp", headers=dict(key)).model_stats[0]
    assert s.inference_count >= 1 and s.inference_stats.success.count >= 1 and s.inference_stats.compute_infer.ns > 0


@case
def triton_shared_memory_refused():
    if not refused:
        return
    try:
        api.register_system_shared_memory("data", "/outboard-clients", 4, headers=dict(key))
    except InferenceServerException as e:
        assert "shared memory" in str(e), e
    else:
        raise AssertionError("it was registered")


@case
def triton_shared_memory():
    if refused:
        return
    x = np.random.default_rng(2).random((1, 784), dtype=np.float32)
    region = shm.create_shared_memory_region("data", "/outboard-clients", 784 * 4 + 40)
    try:
        shm.set_shared_memory_region(region, [x])
        for client, module in ((api, tg), (rest, th)):
            client.unregister_system_shared_memory("data", headers=dict(key))
            client.register_system_shared_memory("data", "/outboard-clients", 784 * 4 + 40, headers=dict(key))
            i = module.InferInput("input", [1, 784], "FP32")
            i.set_shared_memory("data", 784 * 4)
            o = module.InferRequestedOutput("output")
            o.set_shared_memory("data", 40, 784 * 4)
            client.infer("mlp", [i], outputs=[o], headers=dict(key))
            y = shm.get_contents_as_numpy(region, np.float32, [1, 10], 784 * 4).copy()
            assert np.array_equal(y, infer(api, tg, "mlp", x, "input").as_numpy("output"))
            client.unregister_system_shared_memory("data", headers=dict(key))
    finally:
        shm.destroy_shared_memory_region(region)


@case
def triton_timeout_and_priority():
    x = np.zeros((1, 784), np.float32)
    infer(api, tg, "mlp", x, "input", priority=1, timeout=30_000_000)
    refuses("UNAVAILABLE", lambda: infer(api, tg, "mlp", x, "input", timeout=1))  # microsecond


@case
def triton_errors():
    x = np.zeros((1, 784), np.float32)
    assert "none" in refuses("NOT_FOUND", lambda: infer(api, tg, "none", x, "input"))
    assert "783" in refuses("INVALID_ARGUMENT", lambda: infer(api, tg, "mlp", x[:, :783], "input"))
    assert "wrong" in refuses("INVALID_ARGUMENT", lambda: infer(api, tg, "mlp", x, "wrong"))
    assert "FP64" in refuses("INVALID_ARGUMENT", lambda: infer(api, tg, "mlp", x.astype(np.float64), "input"))
    refuses("NOT_FOUND", lambda: infer(api, tg, "mlp", x, "input", model_version="99"))
    assert "sequence" in refuses("NOT_FOUND", lambda: infer(api, tg, "mlp", x, "input", sequence_id=1))
    refuses("404", lambda: infer(rest, th, "none", x, "input"))


@case
def stub_typed_contents():
    for name, field, values in (("BOOL", "bool_contents", [True, False]), ("INT8", "int_contents", [-1, 5]), ("INT64", "int64_contents", [-1, 5]),
                                ("UINT16", "uint_contents", [1, 5]), ("UINT64", "uint64_contents", [1, 5]), ("FP32", "fp32_contents", [1.5, -2]),
                                ("FP64", "fp64_contents", [1.5, -2]), ("BYTES", "bytes_contents", [b"a", b"\xff"])):
        q = pb.ModelInferRequest(model_name="identity_" + name.lower(), inputs=[pb.ModelInferRequest.InferInputTensor(
            name="x", datatype=name, shape=[1, 2], contents=pb.InferTensorContents(**{field: values}))])
        r = stub.ModelInfer(q, metadata=metadata)
        assert list(getattr(r.outputs[0].contents, field)) == values, (name, r)


@case
def stub_bf16():
    q = pb.ModelInferRequest(model_name="identity_bf16", raw_input_contents=[b"\x80\x3f\x00\xc0"],
                             inputs=[pb.ModelInferRequest.InferInputTensor(name="x", datatype="BF16", shape=[1, 2])])
    assert stub.ModelInfer(q, metadata=metadata).raw_output_contents[0] == b"\x80\x3f\x00\xc0"


@case
def stub_unimplemented():
    refuses("UNIMPLEMENTED", lambda: stub.TraceSetting(pb.TraceSettingRequest(), metadata=metadata))


@case
def stub_key_is_needed():
    if not key:
        return
    refuses("UNAUTHENTICATED", lambda: stub.ServerLive(pb.ServerLiveRequest()))


sys.exit(1 if failed else 0)
