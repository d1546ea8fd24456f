from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INVALID_DTYPE: _ClassVar[DType]
    FLOAT16: _ClassVar[DType]
    FLOAT32: _ClassVar[DType]
    FLOAT64: _ClassVar[DType]
    INT64: _ClassVar[DType]
    UINT8: _ClassVar[DType]
INVALID_DTYPE: DType
FLOAT16: DType
FLOAT32: DType
FLOAT64: DType
INT64: DType
UINT8: DType

class GetModelRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetModelReply(_message.Message):
    __slots__ = ("model", "refusal")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    model: Record
    refusal: Refusal
    def __init__(self, model: _Optional[_Union[Record, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class EncodeRequest(_message.Message):
    __slots__ = ("image", "time_limit_s")
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    image: Tensor
    time_limit_s: float
    def __init__(self, image: _Optional[_Union[Tensor, _Mapping]] = ..., time_limit_s: _Optional[float] = ...) -> None: ...

class EncodeReply(_message.Message):
    __slots__ = ("latent", "refusal", "timing")
    LATENT_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    latent: Latent
    refusal: Refusal
    timing: Timing
    def __init__(self, latent: _Optional[_Union[Latent, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("request_id", "robot", "model_fingerprint", "time_limit_s", "request", "latent_dtype")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LATENT_DTYPE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    robot: str
    model_fingerprint: str
    time_limit_s: float
    request: Record
    latent_dtype: DType
    def __init__(self, request_id: _Optional[str] = ..., robot: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., time_limit_s: _Optional[float] = ..., request: _Optional[_Union[Record, _Mapping]] = ..., latent_dtype: _Optional[_Union[DType, str]] = ...) -> None: ...

class PlanReply(_message.Message):
    __slots__ = ("request_id", "plan", "refusal", "timing")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    plan: Record
    refusal: Refusal
    timing: Timing
    def __init__(self, request_id: _Optional[str] = ..., plan: _Optional[_Union[Record, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("total", "decode", "queue", "work")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    total: float
    decode: float
    queue: float
    work: float
    def __init__(self, total: _Optional[float] = ..., decode: _Optional[float] = ..., queue: _Optional[float] = ..., work: _Optional[float] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "reason", "retry_after_s")
    class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Refusal.Code]
        UNAUTHENTICATED: _ClassVar[Refusal.Code]
        INVALID: _ClassVar[Refusal.Code]
        WRONG_MODEL: _ClassVar[Refusal.Code]
        UNKNOWN_LATENT: _ClassVar[Refusal.Code]
        BUSY: _ClassVar[Refusal.Code]
        UNAVAILABLE: _ClassVar[Refusal.Code]
        FAILED: _ClassVar[Refusal.Code]
    UNKNOWN: Refusal.Code
    UNAUTHENTICATED: Refusal.Code
    INVALID: Refusal.Code
    WRONG_MODEL: Refusal.Code
    UNKNOWN_LATENT: Refusal.Code
    BUSY: Refusal.Code
    UNAVAILABLE: Refusal.Code
    FAILED: Refusal.Code
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    code: Refusal.Code
    reason: str
    retry_after_s: float
    def __init__(self, code: _Optional[_Union[Refusal.Code, str]] = ..., reason: _Optional[str] = ..., retry_after_s: _Optional[float] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("dtype", "shape", "data")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    dtype: DType
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, dtype: _Optional[_Union[DType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class Latent(_message.Message):
    __slots__ = ("tensor", "digest")
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    tensor: Tensor
    digest: bytes
    def __init__(self, tensor: _Optional[_Union[Tensor, _Mapping]] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("type", "fields")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    type: str
    fields: _containers.MessageMap[str, Value]
    def __init__(self, type: _Optional[str] = ..., fields: _Optional[_Mapping[str, Value]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("none", "flag", "whole", "real", "text", "tensor", "latent", "sequence", "record")
    NONE_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    LATENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    none: bool
    flag: bool
    whole: int
    real: float
    text: str
    tensor: Tensor
    latent: Latent
    sequence: Sequence
    record: Record
    def __init__(self, none: _Optional[bool] = ..., flag: _Optional[bool] = ..., whole: _Optional[int] = ..., real: _Optional[float] = ..., text: _Optional[str] = ..., tensor: _Optional[_Union[Tensor, _Mapping]] = ..., latent: _Optional[_Union[Latent, _Mapping]] = ..., sequence: _Optional[_Union[Sequence, _Mapping]] = ..., record: _Optional[_Union[Record, _Mapping]] = ...) -> None: ...

class Sequence(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, items: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...
