"""Errors of requests and of the start, with categories from types and codes, not from words."""

import errno

from seamark.errors import UserError

CONTEXT_TOO_LONG = "context_too_long"
METHOD_NOT_SUPPORTED = "method_not_supported"
MODEL_NOT_FOUND = "model_not_found"
MODEL_LOAD_ERROR = "model_load_error"
TOKENIZER_ERROR = "tokenizer_error"
GPU_OUT_OF_MEMORY = "gpu_out_of_memory"
GPU_ERROR = "gpu_error"
HOST_OUT_OF_MEMORY = "host_out_of_memory"
GENERATION_TIMEOUT = "generation_timeout"
GENERATION_FAILED = "generation_failed"
FILESYSTEM_ERROR = "filesystem_error"

NOT_THERE = (None, errno.ENOENT, errno.ENOTDIR)
"""Codes of OSErrors for a file that is not there; transformers raises them without a code."""
CUDA_MEMORY_ALLOCATION = 2
"""cudaErrorMemoryAllocation of the CUDA runtime's cudaError_t."""
CPU_ALLOCATOR = "DefaultCPUAllocator: "
"""In the text of torch's plain RuntimeError for a CPU without memory, which has neither a type nor a code."""


class RequestError(Exception):
    """A request that gets an error as its reply: an HTTP status, a category, and one line."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class StartError(Exception):
    """A model that cannot be served: a category and one line."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnsupportedModelError(Exception):
    """A model whose attention is more than keys, values and a scale: it cannot be made sparse."""


class CancelledRequestError(Exception):
    """The client of a request has gone."""


def wrong(message: str) -> RequestError:
    """Return the error of a request that is the client's mistake."""
    return RequestError(400, "wrong_request", message)


def category_of(error: BaseException, otherwise: str = GENERATION_FAILED) -> str:
    """Return the category of an exception; `otherwise` for one without a meaning of its own."""
    import torch  # here, so that requests can be read without it

    if isinstance(error, (RequestError, StartError)):
        return error.code
    if isinstance(error, (UnsupportedModelError, UserError)):
        return METHOD_NOT_SUPPORTED
    if isinstance(error, torch.OutOfMemoryError):
        return GPU_OUT_OF_MEMORY
    if isinstance(error, torch.AcceleratorError):
        memory = getattr(error, "error_code", None) == CUDA_MEMORY_ALLOCATION
        return GPU_OUT_OF_MEMORY if memory else GPU_ERROR
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return HOST_OUT_OF_MEMORY
    if isinstance(error, RuntimeError) and CPU_ALLOCATOR in str(error):
        return HOST_OUT_OF_MEMORY
    if isinstance(error, TimeoutError):
        return GENERATION_TIMEOUT
    if isinstance(error, OSError) and error.errno not in NOT_THERE:
        return FILESYSTEM_ERROR
    return otherwise


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the device or the machine had too little memory: less work at a time may then fit."""
    return category_of(error) in (GPU_OUT_OF_MEMORY, HOST_OUT_OF_MEMORY)


def reply_to(error: BaseException) -> RequestError:
    """Return an exception as the error of its request: status 400 for a method that this model cannot have, 504 for a
    time limit, 500 for all else that is not the client's mistake."""
    if isinstance(error, RequestError):
        return error
    code = category_of(error)
    text = " ".join(str(error).split())[:500]
    if code == METHOD_NOT_SUPPORTED:
        return RequestError(400, code, f"attention: {text}")
    return RequestError(504 if code == GENERATION_TIMEOUT else 500, code, f"{type(error).__name__}: {text}")
