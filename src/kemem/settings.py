"""Every switch of KeMem, from the environment (KEMEM_*) or a TOML file; arguments win over both."""

from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from kemem.errors import InvalidArgument

CONFIG_FILE = "kemem.toml"


class Settings(BaseSettings):
    """What can be configured; `load` reads it."""

    model_config = SettingsConfigDict(env_prefix="KEMEM_", toml_file=CONFIG_FILE, extra="forbid")

    data_dir: Path = Field(
        default_factory=lambda: Path.home() / ".kemem",
        description="Directory of the embedded store; it is created on first use.",
    )
    database_url: str | None = Field(
        default=None,
        description="PostgreSQL to use instead, as postgresql://user:password@host/database.",
    )
    embedder: Literal["local", "none"] = Field(
        default="local",
        description="local: the multilingual model that comes with the package; none: words only.",
    )
    vector_cache_mb: int = Field(
        default=512, ge=1, description="Memory for the vectors and columns of recent users."
    )
    max_content_bytes: int = Field(
        default=102_400, ge=1, description="Longer messages are cut there and flagged."
    )
    host: str = Field(default="127.0.0.1", description="Address the server listens on.")
    port: int = Field(default=8420, ge=0, le=65_535, description="Port the server listens on.")
    api_key: SecretStr | None = Field(
        default=None, min_length=1, description="Bearer key that protects every route."
    )
    jwt_secret: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="Key (HS256) of tokens whose `sub` is the only user they can reach.",
    )
    max_body_bytes: int = Field(
        default=1_048_576, ge=1, description="Larger request bodies are refused."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="What the server logs; message texts are never logged."
    )

    @field_validator("data_dir")
    @classmethod
    def _find_home(cls, directory: Path) -> Path:
        return directory.expanduser()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load(**given: Any) -> Settings:
    """The settings in force; arguments that are None are left to the environment."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if "data_dir" in chosen:
        chosen.setdefault("database_url", None)  # a directory that is named is meant
    try:
        return Settings(**chosen)
    except TOMLDecodeError as error:
        raise InvalidArgument(f"{CONFIG_FILE} is not valid TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InvalidArgument(
            f"setting {name} (KEMEM_{name.upper()}): {first['msg']}", field=name
        ) from None
