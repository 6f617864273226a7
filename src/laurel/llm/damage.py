"""The exceptions raised by reading a model's damaged files."""


def damaged(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return `others`, and the exceptions of transformers and the libraries through which it reads files.

    An ImportError comes from a tokenizer that needs another package.
    """
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    builtin = (OSError, ValueError, RuntimeError, ArithmeticError, AttributeError, KeyError, TypeError, ImportError)
    return (*others, *builtin, SafetensorError, StrictDataclassError)
