"""Why a model's API refused a request: by the status that its client reports, and what the service said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

OPENAI = ("openai/_base_client.py", "request", "raise self._make_status_error_from_response(err.response) from None")
ANTHROPIC = ("anthropic/_base_client.py", "request", "raise self._make_status_error_from_response(err.response)")
LITELLM = ("litellm/litellm_core_utils/exception_mapping_utils.py", "exception_type", "raise RateLimitError(")


def words(raised_in: tuple[str, str, str], error: str, folder: Path) -> str:
    package, function, code = raised_in
    called = (f"/x/lib/python3.11/site-packages/{package}", function, code)
    text = f"{frames((SCRIPT, 'score', 'reply = client.create(**request)'), called)}{error}\n"
    return " | ".join(explained(folder, text))


@pytest.mark.parametrize(
    ("raised_in", "error", "title", "fix"),
    [
        (
            OPENAI,
            "openai.APIStatusError: Error code: 402 - {'detail': {'error': 'Please top up your balance'}}",
            "no credit left",
            "Add credit",
        ),
        (
            OPENAI,
            "openai.APIStatusError: Error code: 402 - {'error': {'message': 'Insufficient Balance', 'code': 'x'}}",
            "no credit left",
            "continue|go on from there",
        ),
        (
            ANTHROPIC,
            "anthropic.BadRequestError: Error code: 400 - {'type': 'error', 'error': {'type': "
            "'invalid_request_error', 'message': 'Your credit balance is too low to access the Anthropic API.'}}",
            "no credit left",
            "Add credit",
        ),
        (
            OPENAI,
            "openai.AuthenticationError: Error code: 401 - {'error': {'message': 'Incorrect API key provided: x', "
            "'code': 'invalid_api_key'}}",
            "refuses the key",
            "OPENAI_BASE_URL",
        ),
        (
            ANTHROPIC,
            "anthropic.AuthenticationError: Error code: 401 - {'type': 'error', 'error': {'type': "
            "'authentication_error', 'message': 'invalid x-api-key'}}",
            "refuses the key",
            "export ANTHROPIC_API_KEY=... ANTHROPIC_BASE_URL=",
        ),
        (
            ("writer/_base_client.py", "request", "raise self._make_status_error_from_response(err.response)"),
            "writer.AuthenticationError: Error code: 401 - {'message': 'no such key'}",
            "refuses the key",
            "export THE_SERVICE_API_KEY=... THE_SERVICE_BASE_URL=",
        ),
        (
            ANTHROPIC,
            "anthropic.RateLimitError: Error code: 429 - {'error': {'message': 'slower'}}",
            "too many requests",
            "| Anthropic(max_retries=10)",
        ),
        (ANTHROPIC, "anthropic.APIConnectionError: Connection error.", "could not be reached", "$ANTHROPIC_BASE_URL"),
        (
            LITELLM,
            "litellm.exceptions.RateLimitError: litellm.RateLimitError: RateLimitError: OpenAIException - Error code: "
            "429 - {'error': {'message': 'You have no quota', 'code': 'insufficient_quota'}}",
            "no credit left",
            "Add credit",
        ),
        (
            LITELLM,
            "litellm.exceptions.RateLimitError: litellm.RateLimitError: AnthropicException - {'error': {'message': "
            "'Your credit balance is too low to access the API.'}}",
            "no credit left",
            "Add credit",
        ),
        (
            LITELLM,
            "litellm.exceptions.AuthenticationError: litellm.AuthenticationError: AnthropicException - Error code: 401 "
            "- {'error': {'message': 'invalid x-api-key'}}",
            "refuses the key",
            "export ANTHROPIC_API_KEY=",
        ),
        (
            ANTHROPIC,
            "anthropic.NotFoundError: Error code: 404 - {'type': 'error', 'error': {'type': 'not_found_error', "
            "'message': 'model: claude-judge-9'}}",
            "no such model or address: claude-judge-9",
            "client.models.list()",
        ),
        (
            OPENAI,
            "openai.NotFoundError: Error code: 404 - {'object': 'error', 'message': 'The model `ada/judge` does not "
            "exist.', 'type': 'NotFoundError', 'param': None, 'code': 404}",
            "no such model or address: ada/judge",
            "client.models.list()",
        ),
        (
            OPENAI,
            "openai.NotFoundError: Error code: 404 - {'detail': 'Not Found'}",
            "no such model or address (",
            "client.models.list()",
        ),
        (
            OPENAI,
            "openai.BadRequestError: Error code: 400 - {'error': {'message': \"This model's maximum context length is "
            "8192 tokens. However, your messages resulted in 9120 tokens.\", 'code': 'context_length_exceeded'}}",
            "longer than the context of the API's model: 9120 of 8192 tokens",
            "--max-model-len",
        ),
        (
            ANTHROPIC,
            "anthropic.BadRequestError: Error code: 400 - {'type': 'error', 'error': {'type': "
            "'invalid_request_error', 'message': 'prompt is too long: 210022 tokens > 200000 maximum'}}",
            ": 210022 of 200000 tokens",
            "Shorten the text",
        ),
        (
            OPENAI,
            "openai.RateLimitError: Error code: 429 - {'error': {'message': 'Rate limit reached for x on tokens per "
            "min (TPM): Limit 30000, Used 29112', 'code': 'rate_limit_exceeded'}}",
            "too many requests or tokens at a time",
            "max_retries",
        ),
        (
            OPENAI,
            "openai.BadRequestError: Error code: 400 - {'error': {'message': \"Unsupported parameter: 'max_tokens'\", "
            "'param': 'max_tokens'}}",
            "refuses the request: \"Unsupported parameter: 'max_tokens'\"",
            "what the message names",
        ),
        (
            OPENAI,
            "anthropic.InternalServerError: Error code: 529 - {'error': {'message': 'Overloaded'}}",
            'failed: "Overloaded"',
            "read its log",
        ),
        (OPENAI, "openai.APIConnectionError: Connection error.", "could not be reached", "grep -i proxy"),
    ],
)
def test_what_a_service_refuses(
    raised_in: tuple[str, str, str], error: str, title: str, fix: str, tmp_path: Path
) -> None:
    shown = words(raised_in, error, tmp_path)
    assert title in shown
    assert any(one.strip() in shown for one in fix.split("|") if one.strip())
    assert "anthropic" not in error or ("OPENAI" not in shown and "OpenAI(" not in shown)
    assert "may be too new" not in shown


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: Error code: 7 while reading the header",
        "RuntimeError: loading failed. Error code: 402",
        "tools.APIConnectionError: no route",
        "RuntimeError: Error code: 401 - Unauthorized: the scans need a login",
        "tools.exceptions.FileURLRetrievalError: Error code: 404 - not found",
        "ValueError: credit balance is too low for this agent",
    ],
)
def test_what_is_no_answer_of_a_service(error: str, tmp_path: Path) -> None:
    shown = words(("tools/client.py", "f", "raise"), error, tmp_path)
    assert "model's API" not in shown


def test_a_timeout_of_the_service_is_not_one_of_the_client(tmp_path: Path) -> None:
    said = words(OPENAI, "openai.APITimeoutError: Error code: 408 - {'error': {'message': 'took too long'}}", tmp_path)
    assert "did not answer in time" in said and "max_retries=10" in said and "timeout=" not in said
