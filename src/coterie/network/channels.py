"""Connections to others: each bound to the one name (or the one certificate) that the other side must show."""

from __future__ import annotations

import asyncio

import grpc.aio

from coterie.network.keys import Credential, Identity
from coterie.network.wire import CHUNK, LARGEST_MESSAGE

MOST_CHANNELS = 8  # to one name: a peer that moves leaves some behind

OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.max_send_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 3000),  # in truth how long an attempt may take: four times there and back
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A connection over a cut cable is given up, for a new one. Else TCP would try it ever more rarely, and still be
    # waiting long after the cable was mended.
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # two names behind one address are two channels
    ("grpc.enable_http_proxy", 0),
]


class Channels:
    """Shared by all calls, and closed while running only when nobody uses them any more: closing cancels who awaits."""

    def __init__(self, identity: Identity, longest_call: float) -> None:
        self.identity, self.longest_call = identity, longest_call
        self.open: dict[tuple[str, str, str], grpc.aio.Channel] = {}  # by name, endpoint and serial
        self.retired: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    def to(self, name: str, endpoint: str, credential: Credential | None = None) -> grpc.aio.Channel:
        """To the holder of this certificate. Without one: of any of this name, by the circle's authority."""
        key = name, endpoint, credential.serial if credential else ""
        if key not in self.open:
            self._make_room(name)
            trusted = credential.certificate if credential else self.identity.authority
            credentials = grpc.ssl_channel_credentials(
                trusted, self.identity.private_key, self.identity.credential.certificate
            )
            options = [*OPTIONS, ("grpc.ssl_target_name_override", name)]
            self.open[key] = grpc.aio.secure_channel(endpoint, credentials, options=options)
        return self.open[key]

    def _make_room(self, name: str) -> None:
        """For one more to this name; the oldest goes, when all of its calls have ended by themselves."""
        to_it = [key for key in self.open if key[0] == name]
        for key in to_it[: len(to_it) + 1 - MOST_CHANNELS]:
            channel = self.open.pop(key)
            closing = asyncio.ensure_future(channel.close(self.longest_call))
            self.retired[closing] = channel
            closing.add_done_callback(lambda task: self.retired.pop(task, None))

    async def close(self) -> None:
        for closing in self.retired:
            closing.cancel()
        for channel in (*self.open.values(), *self.retired.values()):
            await channel.close()
