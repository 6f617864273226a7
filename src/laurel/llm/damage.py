"""What reading a model's damaged files raises."""


def damaged(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the exceptions of transformers and of what reads files for it, and others.

    An ImportError comes from a tokenizer that needs another package.
    """
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    builtin = (OSError, ValueError, RuntimeError, ArithmeticError, AttributeError, KeyError, TypeError, ImportError)
    return (*others, *builtin, SafetensorError, StrictDataclassError)
