"""Checks whether an ONNX model is safe to run, from its protobuf alone, before onnx's checker or onnxruntime see it.

Parsing can take 75 times the memory of the file, so received models are checked in the sandbox (`Sandbox.check`).
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, FunctionProto, NodeProto, SparseTensorProto, TensorProto, TypeProto, ValueInfoProto

from coterie.core.formatting import plain

LARGEST = 256 * 2**20  # bytes of the user's own model

_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")

# An allowlist: operators that a later version of ONNX adds are refused until they are reviewed. Not allowed are control
# flow (it may not terminate), randomness, sequences, strings, and sizes that depend on the data. Allowed operators may
# still need much memory or time (a product of two vectors is enough): the sandbox limits both.
_NAMES = """
Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil
Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf
IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu
Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor

ArgMax ArgMin CumProd CumSum Hardmax LogSoftmax ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
ReduceMin ReduceProd ReduceSum ReduceSumSquare Softmax TopK

Attention Det Einsum Gemm GRU LSTM MatMul RNN RotaryEmbedding
AveragePool BatchNormalization Conv ConvTranspose GlobalAveragePool GlobalLpPool GlobalMaxPool GroupNormalization
InstanceNormalization LayerNormalization LpNormalization LpPool LRN MaxPool MeanVarianceNormalization
RMSNormalization
ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear

Concat Constant ConstantOfShape DepthToSpace Expand EyeLike Flatten Gather GatherElements GatherND GridSample OneHot
Pad Range Reshape Resize ReverseSequence ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Squeeze Tile
Transpose Trilu Unsqueeze Upsample

ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer LabelEncoder LinearClassifier LinearRegressor Normalizer
OneHotEncoder SVMClassifier SVMRegressor Scaler TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor
"""
_OPERATORS = frozenset(_NAMES.split())


def check(content: bytes, input_shape: tuple[int, ...], classes: int, largest: int) -> str:
    """Why this model cannot be used for inputs of this shape and this number of classes; empty if it can."""
    if len(content) > largest:
        return f"it has {len(content):,} bytes; at most {largest:,} are accepted"
    try:
        model = onnx.ModelProto.FromString(content)
    except (DecodeError, UnicodeDecodeError):
        return "it is not an ONNX model, or a damaged one: its bytes cannot be read"
    if not model.graph.node:
        return "it is not an ONNX model, or an empty one: it has no nodes"
    return _why_unsafe(model) or _why_wrong_input(model, input_shape) or _why_wrong_output(model, classes)


def _why_unsafe(model: onnx.ModelProto) -> str:
    return next((reason for message in _messages(model) if (reason := _why_refused(message))), "")


def _messages(message: Message) -> Iterator[Message]:
    """The message and every message in it, at any depth. (Protobuf parses no deeper than 100.)"""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in (value,) if isinstance(value, Message) else value:
                yield from _messages(part)


def _why_refused(message: Message) -> str:
    match message:
        case TensorProto() if message.external_data or message.data_location == TensorProto.EXTERNAL:
            return f"its tensor '{plain(message.name, 40)}' is in another file; all data must be in the model"
        case SparseTensorProto():
            return "it has a sparse tensor; only dense ones are accepted"
        case FunctionProto():
            return f"it defines its own function '{plain(message.name, 40)}'; only operators of ONNX are accepted"
        case AttributeProto() if message.HasField("g") or message.graphs:
            return f"its attribute '{plain(message.name, 40)}' holds a graph; control flow is not accepted"
        case NodeProto():
            return _why_operator(message)
    return ""


def _why_operator(node: NodeProto) -> str:
    if node.domain not in _DOMAINS:
        return f"it uses operators of the domain '{plain(node.domain, 40)}'; only ai.onnx and ai.onnx.ml are accepted"
    if node.op_type not in _OPERATORS:
        return f"it uses the operator '{plain(node.op_type, 40)}', which is not accepted"
    return ""


def _why_wrong_input(model: onnx.ModelProto, input_shape: tuple[int, ...]) -> str:
    filled = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in filled]
    return _why_mismatch("input", inputs, input_shape)


def _why_wrong_output(model: onnx.ModelProto, classes: int) -> str:
    return _why_mismatch("output", list(model.graph.output), (classes,))


def _why_mismatch(end: str, values: list[ValueInfoProto], expected: tuple[int, ...]) -> str:
    """Why there is not exactly one input (or output) of float32 (N, *expected); empty if there is."""
    if len(values) != 1:
        names = ", ".join(plain(value.name, 40) for value in values[:5]) or "none"
        return f"it has {len(values)} {end}s ({names}), but must have one"
    kind = values[0].type
    if not kind.HasField("tensor_type"):
        return f"its {end} is not a tensor"
    if kind.tensor_type.elem_type != TensorProto.FLOAT:
        return f"its {end} is of type {_type_name(kind.tensor_type.elem_type)}; expected is float32"
    shape = _shape(kind.tensor_type)
    if shape[1:] == list(expected) and not isinstance(shape[0], int):
        return ""
    return f"its {end} has shape ({', '.join(map(str, shape))}); expected is ({', '.join(map(str, ('N', *expected)))})"


def _shape(kind: TypeProto.Tensor) -> list[int | str]:
    """The dimensions: numbers, "N" for a free first dimension, and "?" for any other free one."""
    dims = list(kind.shape.dim)[:10]
    return [dim.dim_value if dim.HasField("dim_value") else ("?" if i else "N") for i, dim in enumerate(dims)] or ["?"]


def _type_name(number: int) -> str:
    return TensorProto.DataType.Name(number).lower() if number in TensorProto.DataType.values() else str(number)
