"""Posting a message to a webhook whose URL is a secret."""

from __future__ import annotations

import ssl

import httpx

TIMEOUT_SECONDS = 10.0


def post_text(url: str, text: str) -> str | None:
    """Post {"text": `text`} as JSON. None when it was accepted (2xx), else why not, without the URL. Never raises.

    Through a transport instead of a client, since clients log the URLs of requests; so there is no redirect either.
    """
    try:
        request = httpx.Request(
            "POST",
            url,
            json={"text": text},
            extensions={"timeout": httpx.Timeout(TIMEOUT_SECONDS).as_dict()},
        )
        with httpx.HTTPTransport(verify=ssl.create_default_context()) as transport:
            response = transport.handle_request(request)
            response.close()
    except Exception as error:  # noqa: BLE001  (a hostile answer may break it in any way, and its text may quote the URL)
        return f"no answer ({type(error).__name__})"
    return None if response.is_success else f"status {response.status_code}"
