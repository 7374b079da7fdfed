"""Every switch of KeMem, from the environment (KEMEM_*) or a TOML file; arguments win over both."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AliasChoices,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from kemem.errors import InvalidArgument, did_you_mean, plain_reason, shown_address
from kemem.records.ontology import Ontology
from kemem.records.privacy import DEFAULT_ACTIONS, Action, ContentPolicy, DataKind

CONFIG_FILE = "kemem.toml"
_NAME, _URL = r"(?:(?!://)\S)+?", r"https?://[^\s/?#]\S*"
_HTTP = "where a URL begins as http://host or https://host"
_OPENAI = r"(?:(?!://)[^\s@])+"  # without an address no @: what follows it was meant as one
_EMBEDDERS = re.compile(rf"local|none|fastembed:{_NAME}|openai:(?:{_OPENAI}|{_NAME}(?<!@)@{_URL})")
_ORIGIN = re.compile(r"https?://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_PRICE = re.compile(r"([^\s=]+)\s*=\s*(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)")
_RERANKERS = re.compile(rf"local|none|(?:{_NAME}@)?{_URL}")
_PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_JSON_EXAMPLES = {"projects": '{"acme": {}}', "ontology": '{"notes": {"bug_report": "…"}}'}
_POSTGRES = re.compile(r"postgres(?:ql)?(?:\+\w+)?://")

# Settings of the process, which are the same for all of its projects.
OF_THE_PROCESS = frozenset(
    [
        *("project", "projects", "host", "port", "api_key", "jwt_secret", "cors_origins"),
        *("rate_limit", "address_rate_limit", "failure_rate_limit", "max_body_bytes"),
        *("max_upload_bytes", "vector_cache_mb", "language", "log_level"),
    ]
)
_OF_ONE_MEMORY = ("data_dir", "backup_dir", "workspace_dir", "database_url")  # never of two


def _privacy(kind: DataKind, shown: str) -> Any:
    return Field(
        default=DEFAULT_ACTIONS[kind],
        description=f"Messages and notes with {shown}: keep, mark (sensitive), mask or refuse.",
    )


class Settings(BaseSettings):
    """What can be configured; `load` reads it."""

    model_config = SettingsConfigDict(
        env_prefix="KEMEM_",
        env_ignore_empty=True,
        toml_file=CONFIG_FILE,
        extra="forbid",
        populate_by_name=True,
        validate_assignment=True,
    )

    data_dir: Path = Field(
        default=Path("~/.kemem"),
        validate_default=True,
        description="Directory of the embedded store; it is created on first use.",
    )
    backup_dir: Path | None = Field(
        default=None, description="Directory of backups, if not backups in data_dir."
    )
    workspace_dir: Path | None = Field(
        default=None,
        description="Directory of the workspaces of tasks, if not workspaces in data_dir.",
    )
    database_url: str | None = Field(
        default=None,
        description="PostgreSQL to use instead, as postgresql://user:password@host/database.",
    )
    database_replica_url: str | None = Field(
        default=None,
        description="A standby of that PostgreSQL, for reads that may be a second old.",
    )
    database_connections: int = Field(
        default=12, ge=2, le=1000, description="Connections of a process to PostgreSQL, at most."
    )
    database_timeout_seconds: float = Field(
        default=60, ge=0, description="Timeout for a PostgreSQL statement; 0: none."
    )
    projects: dict[str, dict[str, Any]] = Field(
        default={},
        repr=False,  # it may hold secrets
        description="Separate memories by name, each with the settings that it overrides, as "
        '{"acme": {"privacy_email": "mask"}}; in the file, [projects.acme].',
    )
    project: str | None = Field(
        default=None, description="The project to use, instead of the default memory."
    )
    embedder: str = Field(
        default="local",
        description="local: the multilingual model that comes with the package; none: words only; "
        "openai:MODEL@URL: a server with OpenAI's API; fastembed:MODEL: the package fastembed.",
    )
    embedder_api_key: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="Key of the embedder, if not that of the LLM at the same address.",
    )
    embedder_timeout_seconds: float = Field(
        default=30, gt=0, description="Timeout for vectors; after it, a job retries."
    )
    reranker: str = Field(
        default="local",
        description="local: the network that comes with the package reads the best hits; none: no "
        "reranking; URL or MODEL@URL: a server that reorders them.",
    )
    reranker_api_key: SecretStr | None = Field(
        default=None, min_length=1, description="Key of the reranker."
    )
    llm: Literal["auto", "none"] = Field(
        default="auto",
        description="auto: an OpenAI-compatible model if a key or address is set; none: rules.",
    )
    llm_model: str = Field(default="gpt-4o-mini", min_length=1, description="Name of the model.")
    llm_api_key: SecretStr | None = Field(
        default=None,
        min_length=1,
        validation_alias=AliasChoices("KEMEM_LLM_API_KEY", "OPENAI_API_KEY"),
        description="Key of the model; also read from OPENAI_API_KEY.",
    )
    llm_base_url: str | None = Field(
        default=None,
        min_length=1,
        validation_alias=AliasChoices("KEMEM_LLM_BASE_URL", "OPENAI_BASE_URL"),
        description="Address of the model; also read from OPENAI_BASE_URL.",
    )
    llm_prices: str | None = Field(
        default=None,
        description="What a million tokens cost, as MODEL=INPUT/OUTPUT, several with commas; the "
        "dashboard shows costs by it.",
    )
    llm_timeout_seconds: float = Field(
        default=60, gt=0, description="Timeout for an answer; after it, a job retries."
    )
    llm_context_tokens: int = Field(
        default=0,
        ge=0,
        description="Context length of the model; longer prompts are split. 0: ask the server.",
    )
    neo4j_url: str | None = Field(
        default=None, description="Neo4j to mirror the graph to, as neo4j://host:7687."
    )
    neo4j_user: str = Field(default="neo4j", description="User of the Neo4j database.")
    neo4j_password: SecretStr | None = Field(default=None, description="Password of that user.")
    neo4j_database: str | None = Field(default=None, description="Its name, if not the default.")
    state_tokens: int = Field(
        default=2000, ge=200, description="Tokens of a session that stay verbatim in its State."
    )
    forget_limit: int = Field(
        default=0, ge=0, description="Number of notes to keep per user, strongest first; 0: all."
    )
    forget_below: float = Field(
        default=0, ge=0, le=1, description="Notes weaker than this are forgotten; 0: none."
    )
    forget_half_life_days: float = Field(
        default=90, gt=0, description="Days after which an unused note is half as strong."
    )
    recall_language: Literal["auto", "zh", "en"] = Field(
        default="auto",
        description="Language of the recall agent's tools and answers; auto: of the question.",
    )
    recall_tools: Literal["short", "full"] = Field(
        default="short",
        description="Tool descriptions for a model that drives a recall; full: for large models.",
    )
    recall_max_iterations: int = Field(
        default=3, ge=1, le=10, description="Rounds of a recall, each with a larger window."
    )
    recall_window: int = Field(
        default=5, ge=1, le=1000, description="Messages of the conversation that a recall sees."
    )
    recall_max_window: int = Field(
        default=100, ge=1, le=1000, description="Most messages that a recall can request."
    )
    recall_max_calls: int = Field(
        default=15, ge=1, le=100, description="Tool calls of one recall, all rounds together."
    )
    recall_seconds: float = Field(
        default=60, gt=0, description="After this time a recall returns what it has found."
    )
    chat_recall: Literal["auto", "call", "note"] = Field(
        default="auto",
        description="How a chat model receives recalled memories. call: as its own tool call; "
        "note: in its instructions, without tools; auto: call if the model handles tools.",
    )
    chat_recall_limit: int = Field(
        default=2,
        ge=0,
        le=20,
        description="Recalls that a chat model may request in a turn, besides the initial one.",
    )
    chat_history_tokens: int = Field(
        default=4000, ge=200, description="Tokens of the conversation that a chat model receives."
    )
    trace_days: int = Field(
        default=30, ge=0, description="Days that a server keeps traces of recalls; 0: none."
    )
    audit: Literal["none", "writes", "all"] = Field(
        default="writes",
        description="What a server and commands record: writes, exports and reads across users; "
        "all: every read too; none: nothing.",
    )
    audit_days: int = Field(
        default=365, ge=0, description="Days that audit lines are kept; 0: forever."
    )
    rpc_agent: str = Field(
        default="default", min_length=1, description="Agent that owns the knowledge of JSON-RPC."
    )
    vector_cache_mb: int = Field(
        default=512,
        ge=1,
        description="Memory for the vectors and columns of recent users; projects share it.",
    )
    max_content_bytes: int = Field(
        default=102_400, ge=1, description="Longer messages are cut there and flagged."
    )
    ontology: Ontology = Field(
        default_factory=Ontology,
        description="Own types of notes, entities and relations; in the environment as JSON.",
    )
    privacy_api_key: Action = _privacy("api_key", "API keys, tokens and private keys")
    privacy_password: Action = _privacy("password", "passwords and PINs")
    privacy_id_number: Action = _privacy("id_number", "ID-card and social security numbers")
    privacy_card_number: Action = _privacy("card_number", "numbers of credit and bank cards")
    privacy_phone_number: Action = _privacy("phone_number", "phone numbers")
    privacy_email: Action = _privacy("email", "e-mail addresses")
    store_thinking: bool = Field(
        default=False, description="Whether to store the reasoning of models with their messages."
    )
    host: str = Field(default="127.0.0.1", description="Address the server listens on.")
    port: int = Field(default=8420, ge=0, le=65_535, description="Port the server listens on.")
    api_key: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="Admin key that protects every route; kemem keys makes others.",
    )
    jwt_secret: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="Key (HS256) of tokens; a token reaches only the user in its `sub`.",
    )
    cors_origins: str = Field(
        default="",
        description="Web sites whose pages may call the API from a browser, as "
        "https://app.example,http://localhost:3000; empty: none.",
    )
    rate_limit: int = Field(
        default=12_000,
        ge=0,
        description="Requests a minute of one key or token to a server process; 0: no limit.",
    )
    address_rate_limit: int = Field(
        default=0, ge=0, description="Requests a minute from one address; 0: no limit."
    )
    failure_rate_limit: int = Field(
        default=30,
        ge=0,
        description="Wrong keys a minute from one address, at the sign-in too; 0: no limit.",
    )
    max_body_bytes: int = Field(
        default=1_048_576, ge=1, description="Larger request bodies are rejected."
    )
    max_upload_bytes: int = Field(
        default=1 << 30, ge=1, description="Larger files to import are rejected."
    )
    language: Literal["auto", "zh", "en"] = Field(
        default="auto",
        description="Language of the command line; auto: that of LC_ALL, LC_MESSAGES or LANG.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="What the server logs; message texts are never logged."
    )

    _process: "Settings | None" = PrivateAttr(None)

    @property
    def of_process(self) -> "Settings":
        """The settings of the process, which a project's were made from."""
        return self._process or self

    if not TYPE_CHECKING:  # type checkers see the fields

        def __init__(self, **values: Any) -> None:
            """InvalidArgument where a value is wrong, or a name is not that of a setting."""
            try:
                super().__init__(**values)
            except (TOMLDecodeError, UnicodeDecodeError) as error:
                reason = f"{CONFIG_FILE} is not valid TOML: {error}"
                raise InvalidArgument(reason, field=CONFIG_FILE) from None
            except SettingsError as error:  # its values may be secret
                name = next(it for it in _JSON_EXAMPLES if f'"{it}"' in str(error))
                expected = f"must be a JSON object, as {_JSON_EXAMPLES[name]}"
                whole = f"setting {_with_variable(name)} {expected}"
                raise InvalidArgument(whole, field=name) from None
            except ValidationError as error:
                raise _refusal(error, given=values) from None

    def of_project(self, name: str) -> "Settings":
        """The settings of a project: a store of its own, and what it overrides."""
        if name not in self.projects:
            raise InvalidArgument(unknown_project(name, self.projects), field="project")
        own, place = self.projects[name], Path("projects", name)
        folders = {it: getattr(self, it) for it in ("data_dir", "backup_dir", "workspace_dir")}
        apart: dict[str, Any] = {it: path / place for it, path in folders.items() if path}
        apart |= {"project": name, "projects": {}}
        apart |= {} if "neo4j_database" in own else {"neo4j_url": None}
        if "database_url" in own or "data_dir" in own:
            apart |= {"database_url": None, "database_replica_url": None}
        settings = self.model_copy(update=apart)
        settings._process = self.model_copy(update={"project": None})
        for key, value in own.items():
            setattr(settings, key, value)  # which validates it
        for key in ("database_url", "database_replica_url"):
            url = getattr(settings, key)
            setattr(settings, key, url and _with_schema(url, name, is_own=key in own))
        return settings

    @property
    def has_llm(self) -> bool:
        """Whether a model is named that can be asked."""
        return self.llm != "none" and bool(self.llm_api_key or self.llm_base_url)

    @property
    def content_policy(self) -> ContentPolicy:
        """What is stored of a text."""
        return ContentPolicy.of(self)

    @field_validator("ontology", mode="before")
    @classmethod
    def _check_ontology(cls, value: object) -> Ontology:
        try:
            return Ontology.parse(value)
        except InvalidArgument as error:  # which names the place already
            raise ValueError(error.message) from None

    @field_validator("embedder")
    @classmethod
    def _check_embedder(cls, value: str) -> str:
        if not _EMBEDDERS.fullmatch(value) or not _has_port(split_url(value)[1]):
            known = "local, none, openai:MODEL, openai:MODEL@URL or fastembed:MODEL"
            raise ValueError(f"must be {known}, {_HTTP}, not {shown_model(value)!r:.80}")
        return value

    @field_validator("reranker")
    @classmethod
    def _check_reranker(cls, value: str) -> str:
        if not _RERANKERS.fullmatch(value) or not _has_port(split_url(value)[1]):
            known = "local, none, URL or MODEL@URL"
            raise ValueError(f"must be {known}, {_HTTP}, not {shown_model(value)!r:.80}")
        return value

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, value: str) -> str:
        for origin in split_origins(value):
            if not _ORIGIN.fullmatch(origin):
                form = "exact origins such as https://app.example, in lower case and without a path"
                raise ValueError(f"must be {form}, not {origin!r:.80}")
        return value

    @field_validator("llm_base_url")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        if value is not None and not (re.fullmatch(_URL, value) and _has_port(value)):
            shown = re.sub(r"[^/@]*@|[?#].*", "", value)  # without secrets
            raise ValueError(f"must be a URL, {_HTTP}, not {shown!r:.80}")
        return value

    @field_validator("llm_prices")
    @classmethod
    def _check_prices(cls, value: str | None) -> str | None:
        parse_prices(value)
        return value

    @field_validator("projects")
    @classmethod
    def _check_projects(cls, projects: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, own in projects.items():
            if not _PROJECT.fullmatch(name):
                form = "1-40 of a-z, 0-9, - and _, beginning with a letter or digit"
                raise ValueError(f"must have names of {form}, not {name!r:.80}")
            for key in own:
                if key not in cls.model_fields:
                    advice = did_you_mean(key, cls.model_fields)
                    reason = f"must not have {name}.{key}: there is no such setting{advice}"
                    raise ValueError(reason)
                if key in OF_THE_PROCESS:
                    raise ValueError(f"must not have {name}.{key}: all projects share it")
        return projects

    @field_validator("data_dir", "backup_dir", "workspace_dir", mode="before")
    @classmethod
    def _refuse_blank(cls, directory: object) -> object:
        if isinstance(directory, str) and not directory.strip():
            raise ValueError(f"must be the path of a directory, not {directory!r}")
        return directory

    @field_validator("data_dir", "backup_dir", "workspace_dir")
    @classmethod
    def _find_home(cls, directory: Path | None) -> Path | None:
        try:
            return directory and directory.expanduser()
        except RuntimeError:  # in a container, say
            home = "the path of a directory, without ~ where the user has no home"
            raise ValueError(f"must be {home}, not {str(directory)!r:.80}") from None

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


def unknown_variables() -> list[str]:
    """Variables that look like settings and are none; nobody reads them."""
    valid = {f"KEMEM_{name.upper()}" for name in Settings.model_fields}
    variables = {name.upper() for name in os.environ if name.upper().startswith("KEMEM_")}
    return sorted(variables - valid)


def split_origins(text: str) -> tuple[str, ...]:
    """The origins of a list.  "https://a.example, http://b" -> ("https://a.example", "http://b")"""
    return tuple(filter(None, map(str.strip, text.split(","))))


def parse_prices(text: str | None) -> dict[str, tuple[float, float]]:
    """Prices of input and output by model.  "a=0.15/0.6, b=1/2" -> {"a": (0.15, 0.6), …}"""
    prices = {}
    for part in filter(None, map(str.strip, (text or "").split(","))):
        match = _PRICE.fullmatch(part)
        if match is None:
            known = "MODEL=INPUT/OUTPUT, as gpt-4o-mini=0.15/0.6"
            raise ValueError(f"must be {known}, not {part!r:.80}")
        prices[match[1]] = float(match[2]), float(match[3])
    return prices


def _has_port(url: str | None) -> bool:
    """Whether host and port of a URL can be read, if it has any."""
    try:
        return url is None or urlsplit(url).port != 0
    except ValueError:
        return False


def split_url(text: str) -> tuple[str, str | None]:
    """A model and the URL behind it.  "bge-m3@http://host/v1" -> ("bge-m3", "http://host/v1")"""
    url = re.search("@?(https?://.*)", text)
    return (text[: url.start()], url[1]) if url else (text, None)


def shown_model(value: str) -> str:
    """A model of the settings, without the secrets of its URL."""
    _, url = split_url(value)
    return value if url is None else value[: -len(url)] + shown_address(url)


def shown_url(url: str) -> str:
    """A database URL without what is secret in it."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        return "***"
    schema = {key: value for key, value in parsed.query.items() if key == "schema"}
    return parsed.set(query=schema).render_as_string(hide_password=True)


def unknown_project(name: str, projects: Iterable[str]) -> str:
    """Why a project cannot be used, for those who may know of the others."""
    known = ", ".join(sorted(projects)) or "none"
    return f"there is no project {name!r:.80}; declared in the settings: {known}"


def _with_schema(url: str, project: str, *, is_own: bool) -> str:
    """A database URL with the schema of a project, unless it names one."""
    if not _POSTGRES.match(url):
        if is_own:
            return url
        reason = f"setting projects.{project} needs a database_url or data_dir of its own: "
        raise InvalidArgument(f"{reason}only PostgreSQL has schemas", field="projects")
    _, _, query = url.rpartition("@")[2].partition("?")
    if re.search("(^|&)schema=", query):
        return url
    return f"{url}{'&' if query else '?'}schema=kemem_{project}"


def _check_apart(settings: Settings, given: Iterable[str]) -> None:
    """Refuse projects with a wrong setting, two memories in one place and a replica of none."""
    owners: dict[tuple[str, str], str] = {}
    for name in (None, *settings.projects):
        try:
            own = settings if name is None else settings.of_project(name)
        except ValidationError as error:
            raise _refusal(error, f"projects.{name}.") from None
        _check_replica(own, name, given)
        places = {it: getattr(own, it) for it in _OF_ONE_MEMORY}
        places["neo4j_url"] = own.neo4j_url and (own.neo4j_url, own.neo4j_database)
        for key, place in places.items():
            shown = str(place.absolute() if isinstance(place, Path) else place)
            other = owners.setdefault((key, shown), name or "the default memory")
            if place is not None and other != (name or "the default memory"):
                reason = f"setting projects.{name}.{key} is the same as that of {other}"
                raise InvalidArgument(f"{reason}: each needs its own", field="projects")


def _check_replica(settings: Settings, name: str | None, given: Iterable[str]) -> None:
    """Refuse a replica of nothing, which nobody would read from."""
    url = settings.database_replica_url
    if url is not None and settings.database_url is None:
        key = "database_replica_url" if name is None else f"projects.{name}.database_replica_url"
        line = "" if key in given else _line_in_file(key)
        reason = f"needs a database_url, whose standby {shown_url(url)} is"
        raise InvalidArgument(f"{line}setting {_with_variable(key)} {reason}", field=key)


def choose(settings: Settings | None, store: object = None, **values: Any) -> Settings:
    """The settings that a caller passes, or those in force; values name a store of their own."""
    if (settings is not None or store is not None) and any(
        it is not None for it in values.values()
    ):
        raise InvalidArgument(f"pass settings or store, or {' or '.join(values)}, not both")
    if not isinstance(settings, Settings | None):
        reason = f"settings must be Settings, as load() returns them, not {settings!r:.80}"
        raise InvalidArgument(reason, field="settings")
    return load(**values) if settings is None else settings


def load(**given: Any) -> Settings:
    """The settings in force; arguments that are None are left to the environment."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if "data_dir" in chosen:
        chosen.setdefault("database_url", None)  # a directory that is named is meant
        if chosen["database_url"] is None:
            chosen.setdefault("database_replica_url", None)
    settings = Settings(**chosen)
    _check_apart(settings, chosen)
    return settings if settings.project is None else settings.of_project(settings.project)


def _refusal(error: ValidationError, place: str = "", given: Iterable[str] = ()) -> InvalidArgument:
    """A wrong setting in plain words; `place` is that of a project, `given` came as arguments."""
    first: Any = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"]).removeprefix("KEMEM_").lower()
    if first["type"] == "extra_forbidden":
        reason = f" does not exist{did_you_mean(name, Settings.model_fields)}"
    else:
        if isinstance(first["input"], dict | list):  # secrets may be among its values
            del first["input"]
        reason = plain_reason(first, name)
    line = "" if name in given else _line_in_file(place + name)
    return InvalidArgument(f"{line}setting {_with_variable(place + name)}{reason}", field=name)


def _line_in_file(name: str) -> str:
    """Where the file has a setting, unless a variable overrides it.  -> "kemem.toml, line 3: " """
    keys, variables = name.split("."), {it.upper() for it, value in os.environ.items() if value}
    if f"KEMEM_{keys[0].upper()}" in variables or not Path(CONFIG_FILE).is_file():
        return ""
    lines = Path(CONFIG_FILE).read_text("utf-8").splitlines()
    at = -1
    for key in keys:  # of tables, then of the setting
        pattern = re.compile(rf"""[\s\["']*(?:[^=#]*\.)?{re.escape(key)}["'\s]*[\].=]""")
        found = (number for number in range(max(at, 0), len(lines)) if pattern.match(lines[number]))
        at = next(found, at)
    return f"{CONFIG_FILE}, line {at + 1}: " if at >= 0 else ""


def _with_variable(name: str) -> str:
    """A setting and its variable.  "port" -> "port (KEMEM_PORT)" """
    return f"{name} (KEMEM_{name.partition('.')[0].upper()})"
