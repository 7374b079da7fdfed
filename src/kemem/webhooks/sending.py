"""One delivery: the signed request, and the addresses that get none."""

import asyncio
import ipaddress
import json
import socket
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from kemem.records import Micros
from kemem.records.times import to_rfc3339
from kemem.records.webhooks import Webhook, sign

TIMEOUT = 10.0  # seconds for one attempt
# Metadata services of clouds outside the link-local networks: Alibaba Cloud, AWS over IPv6.
_METADATA = {ipaddress.ip_address(it) for it in ("100.100.100.200", "fd00:ec2::254")}


def body_of(event_id: str, type: str, at: Micros, data: Mapping[str, Any]) -> bytes:
    """An event as it is sent."""
    event = {"id": event_id, "type": type, "created_at": to_rfc3339(at), "data": data}
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()


@cache
def _certificates() -> Any:
    import httpx2

    return httpx2.create_ssl_context()


async def open_client() -> Any:
    """A client for several deliveries, to be used as a context."""
    certificates = await asyncio.to_thread(_certificates)  # the first time it takes a while
    import httpx2

    return httpx2.AsyncClient(verify=certificates, timeout=None, follow_redirects=False)


class _RefusedAddress(Exception):
    """An endpoint is at an address that no delivery goes to."""


async def post(
    client: Any, webhook: Webhook, event_id: str, body: bytes, now: Micros
) -> tuple[int | None, str | None]:
    """One attempt: the status of the answer, if there is one, and what went wrong, if anything.

    The error repeats neither the address nor the answer: either may hold secrets.
    """
    import httpx2

    seconds = now // 1_000_000
    headers = {
        "content-type": "application/json",
        "user-agent": "KeMem-Webhooks",
        "webhook-id": event_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": sign(webhook.secret, event_id, seconds, body),
    }
    options = {"content": body, "headers": headers, "extensions": {"trace": _check_peer}}
    try:
        async with asyncio.timeout(TIMEOUT):
            await _check_host(webhook.url)
            async with client.stream("POST", webhook.url, **options) as response:
                status = int(response.status_code)
    except TimeoutError:
        return None, f"did not answer within {TIMEOUT:g} s"
    except _RefusedAddress:
        return None, "is at a link-local address or a metadata service, where nothing is sent"
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError) as error:
        return None, f"cannot be reached: {type(error).__name__}"
    if 300 <= status < 400:
        return status, f"answered {status}; redirects are not followed"
    return status, None if 200 <= status < 300 else f"answered {status}"


async def _check_host(url: str) -> None:
    """Refuse a host with a refused address, before anything connects."""
    try:
        loop, host = asyncio.get_running_loop(), urlsplit(url).hostname
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a proxy may know it; if nobody does, connecting fails
        return
    for *_, address in found:
        _check_address(str(address[0]))


async def _check_peer(name: str, info: Mapping[str, Any]) -> None:
    """Refuse a connection to a refused address: a name may have another one by now."""
    if name == "connection.connect_tcp.complete":
        stream = info["return_value"]
        try:
            _check_address(stream.get_extra_info("server_addr")[0])
        except _RefusedAddress:
            await stream.aclose()
            raise


def _check_address(text: str) -> None:
    if is_refused(text):
        raise _RefusedAddress


def is_refused(text: str) -> bool:
    """Whether nothing is delivered to an IP address: link-local ones, metadata services.

    >>> is_refused("169.254.169.254"), is_refused("::ffff:169.254.1.1"), is_refused("10.0.0.1")
    (True, True, False)
    """
    address = ipaddress.ip_address(text)
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_link_local or address in _METADATA
