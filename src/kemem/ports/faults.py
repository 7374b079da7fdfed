"""What went wrong between us and a server of models, in words that repeat nothing it was sent."""

from kemem.errors import shown_address

MAX_ANSWER = 32 << 20  # bytes of one answer, streamed or whole: far more than any good one has
OPENAI = "https://api.openai.com/v1"  # where its library turns to without an address


class TooLarge(Exception):
    """An answer has more bytes than are read."""


def whose(model: str, base_url: str) -> str:
    """A model and where it is, without secrets.  -> "the LLM 'qwen3' at http://127.0.0.1/v1" """
    if not base_url:  # a function or an object of the caller's own
        return "the LLM"
    return f"the LLM {model!r:.80} at {shown_address(base_url.rstrip('/'))}"


def fault(error: BaseException, seconds: float = 0, key: str = "KEMEM_LLM_API_KEY") -> str:
    """What a server did, by what its client raised, as it follows the server's name.

    `key` is the setting that holds the key for it.

    >>> fault(TimeoutError(), 60.0), fault(OSError())
    ('did not answer within 60 s', 'failed: OSError')
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(error, "status_code", None)
    if isinstance(error, TooLarge) or isinstance(error.__cause__, TooLarge):
        return f"answered with more than {MAX_ANSWER >> 20} MiB"
    if status in (401, 403):
        return f"refuses the key of this server ({status}): check {key}"
    if isinstance(status, int):
        return f"answered {status}" + (": it knows no such path or model" * (status == 404))
    if isinstance(error, TimeoutError) or names & {"APITimeoutError", "TimeoutException"}:
        return f"did not answer within {seconds:g} s" if seconds else "did not answer in time"
    if "APIConnectionError" in names:
        return "cannot be reached"
    if "TransportError" in names:  # of httpx, in the middle of a stream
        return "broke off"
    return f"failed: {type(error).__name__}"
