"""Warnings that would come with every request."""

from structlog.testing import capture_logs

from kemem.serve.telemetry.seldom import SeldomWarnings


def test_an_equal_warning_comes_once_in_half_a_minute() -> None:
    """And tells then how often it was held back; another one is not held back by it."""
    now = 0.0
    warnings = SeldomWarnings(lambda: now)
    with capture_logs() as lines:
        for _ in range(5):
            warnings.warn("cannot serve now", reason="数据库不在")
            warnings.warn("cannot serve now", reason="the model is away")
        now = 31.0
        warnings.warn("cannot serve now", reason="数据库不在")
        now = 62.0
        warnings.warn("cannot serve now", reason="数据库不在")
    assert [(it["reason"], it.get("repeated")) for it in lines] == [
        ("数据库不在", None),
        ("the model is away", None),
        ("数据库不在", 4),
        ("数据库不在", None),
    ]


def test_only_some_warnings_are_remembered() -> None:
    with capture_logs() as lines:
        warnings = SeldomWarnings(lambda: 0.0)
        for number in range(250):
            warnings.warn("cannot serve now", reason=f"model {number}")
        warnings.warn("cannot serve now", reason="model 249")
    assert len(lines) == 250
