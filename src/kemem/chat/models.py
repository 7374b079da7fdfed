"""The chat model of the settings, as a client that speaks OpenAI's API."""

from typing import TYPE_CHECKING

from kemem.errors import Conflict
from kemem.settings import Settings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NO_MODEL = (
    "no chat model is configured: set KEMEM_LLM_API_KEY for OpenAI, or KEMEM_LLM_BASE_URL and "
    "KEMEM_LLM_MODEL for any server that speaks its API (DeepSeek, Ollama, vLLM …)"
)


def connect(settings: Settings) -> tuple["AsyncOpenAI", str]:
    """A client for the model that the settings name, and its name; Conflict where there is none."""
    if not settings.has_llm:
        raise Conflict(NO_MODEL)
    from openai import AsyncOpenAI

    key = settings.llm_api_key
    client = AsyncOpenAI(
        base_url=settings.llm_base_url,
        # Without a key the library would take one from the environment: not for another's server.
        api_key=key.get_secret_value() if key else "none",
        timeout=settings.llm_timeout_seconds,
        max_retries=1,
    )
    return client, settings.llm_model
