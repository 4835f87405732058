"""Cases that KServe's client passes against a node with the model mlp of test/e2e/modelclients_test.go.
(Its messages and tritonclient's have the same names: a process can't import both.)

Usage: kserveclient.py ADDRESS, the HOST:PORT of gRPC and REST. One line for each case.
"""
import asyncio
import os
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

address = sys.argv[1]
url = "http://" + address
key = [("authorization", "Bearer " + os.environ["OUTBOARD_KEY"])] if "OUTBOARD_KEY" in os.environ else []
failed = []


async def run(f):
    await f(InferenceGRPCClient(url=address))  # in the loop that it is used in


def case(f):
    try:
        asyncio.run(run(f))
        print("ok  ", f.__name__)
    except Exception as e:  # a case may fail in any way
        failed.append(f.__name__)
        print("FAIL", f.__name__, type(e).__name__, str(e)[:300])


def request(x, raw):
    i = InferInput(name="input", shape=list(x.shape), datatype="FP32")
    i.set_data_from_numpy(x, binary_data=raw)
    return InferRequest(model_name="mlp", infer_inputs=[i])


@case
async def kserve_health(client):
    assert await client.is_server_live(headers=key) and await client.is_server_ready(headers=key)
    assert await client.is_model_ready("mlp", headers=key)


@case
async def kserve_infer(client):
    x = np.random.default_rng(3).random((2, 784), dtype=np.float32)
    raw = (await client.infer(request(x, True), headers=key)).outputs[0].as_numpy()
    typed = (await client.infer(request(x, False), headers=key)).outputs[0].as_numpy()
    assert raw.shape == (2, 10) and np.array_equal(raw, typed)


@case
async def kserve_errors(client):
    try:
        await client.infer(request(np.zeros((1, 3), np.float32), True), headers=key)
    except Exception as e:
        assert "784" in str(e), e
    else:
        raise AssertionError("no error")


@case
async def kserve_rest_health(_):
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_server_live(url, headers=dict(key)) and await client.is_server_ready(url, headers=dict(key))
    assert await client.is_model_ready(url, "mlp", headers=dict(key))


@case
async def kserve_rest_infer(grpc):
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    x = np.random.default_rng(3).random((2, 784), dtype=np.float32)
    want = (await grpc.infer(request(x, True), headers=key)).outputs[0].as_numpy()
    for raw in True, False:
        answer = await client.infer(url, request(x, raw), model_name="mlp", headers=dict(key))
        assert answer.outputs[0].shape == [2, 10] and np.allclose(answer.outputs[0].as_numpy(), want, atol=1e-6)


@case
async def kserve_rest_errors(_):
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    try:
        await client.infer(url, request(np.zeros((1, 3), np.float32), True), model_name="mlp", headers=dict(key))
    except Exception as e:
        assert "784" in str(e) and "400" in str(e), e
    else:
        raise AssertionError("no error")


sys.exit(1 if failed else 0)
