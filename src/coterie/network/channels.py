"""gRPC channels to other peers, each bound to the name or certificate that the other side must present."""

from __future__ import annotations

import asyncio

import grpc.aio

from coterie.network.keys import Credential, Identity
from coterie.network.wire import CHUNK, LARGEST_MESSAGE

MOST_CHANNELS = 8  # to one peer: each change of its address leaves one behind

OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.max_send_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 3000),  # in fact the timeout of a connection attempt: four round trips
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Give up a dead connection and open a new one. TCP alone would retry ever more rarely, and still be waiting long
    # after the network is back.
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # two peers behind one address need two channels
    ("grpc.enable_http_proxy", 0),
]


class Channels:
    """A cache of channels, shared by all calls. A channel is closed only when unused: closing cancels its calls."""

    def __init__(self, identity: Identity, longest_call: float) -> None:
        self.identity, self.longest_call = identity, longest_call
        self.open: dict[tuple[str, str, str], grpc.aio.Channel] = {}  # by name, endpoint and serial
        self.retired: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    def to(self, name: str, endpoint: str, credential: Credential | None = None) -> grpc.aio.Channel:
        """A channel to the holder of this certificate, or without one, of any certificate of this name."""
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
        """Retire the oldest channel to this peer if there are too many; it closes once its calls have ended."""
        keys = [key for key in self.open if key[0] == name]
        for key in keys[: len(keys) + 1 - MOST_CHANNELS]:
            channel = self.open.pop(key)
            closing = asyncio.ensure_future(channel.close(self.longest_call))
            self.retired[closing] = channel
            closing.add_done_callback(lambda task: self.retired.pop(task, None))

    async def close(self) -> None:
        for closing in self.retired:
            closing.cancel()
        for channel in (*self.open.values(), *self.retired.values()):
            await channel.close()
