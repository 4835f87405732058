"""A model of MLServer that runs an ONNX file by ONNX Runtime and describes its tensors."""
import numpy
import onnxruntime
from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor, ResponseOutput

TYPES = {
    "float": ("FP32", "float32"), "double": ("FP64", "float64"), "float16": ("FP16", "float16"), "bool": ("BOOL", "bool"),
    "string": ("BYTES", "str"),
} | {f"{sign}int{bits}": (f"{sign.upper()}INT{bits}", f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}


def metadata(values) -> list[MetadataTensor]:
    return [
        MetadataTensor(
            name=v.name, datatype=TYPES[v.type[7:-1]][0],
            shape=[d if isinstance(d, int) else -1 for d in v.shape],
        )
        for v in values
    ]


class Network(MLModel):
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(self.settings.parameters.uri, options)
        self.inputs = metadata(self.session.get_inputs())
        self.outputs = metadata(self.session.get_outputs())
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        kinds = {v.name: TYPES[v.type[7:-1]][1] for v in self.session.get_inputs()}
        feed = {
            i.name: numpy.array(list(i.data or []), dtype=kinds[i.name]).reshape(i.shape)
            for i in payload.inputs
        }
        names = [o.name for o in payload.outputs or []] or [o.name for o in self.session.get_outputs()]
        values = dict(zip(names, self.session.run(names, feed)))
        kinds = {v.name: TYPES[v.type[7:-1]][0] for v in self.session.get_outputs()}
        return InferenceResponse(
            model_name=self.name,
            outputs=[
                ResponseOutput(name=n, datatype=kinds[n], shape=list(v.shape), data=v.flatten().tolist())
                for n, v in values.items()
            ],
        )
