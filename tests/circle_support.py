"""A few real peers for tests: their folders, keys, ports and files."""

from __future__ import annotations

from pathlib import Path

from coterie.network import authority
from coterie.running.local_circle import free_ports
from coterie.running.real_peer import PeerFile, read_file

BASE = """
seed = 0
rounds = 2
peers = {peers}
[method]
name = "{method}"
[data]
name = "{data}"
label = "kind"
{more}
[model]
hidden = [4]
[network]
deadline = 30
interval = 0.2
gather = 30
linger = 10
"""


class Circle:
    """Folders and files of a few peers with names, ports and keys."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.folder, self.names = folder, names
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        authority.create_authority(folder / "keys")
        for name in names:
            authority.issue(name, folder / "keys")

    def file(self, name: str, method: str = "gossip", data: str = "wine", peer: str = "", more: str = "") -> PeerFile:
        text = BASE.format(peers=len(self.names), method=method, data=data, more=more)
        first = self.names[0]
        text += f"""
[peer]
keys = "keys/{name}"
listen = "127.0.0.1:{self.ports[name]}"
seeds = ["{first}@127.0.0.1:{self.ports[first]}"]
{peer}
"""
        (self.folder / f"{name}.toml").write_text(text)
        return read_file(self.folder / f"{name}.toml", ["method.k=1"] if method in ("gossip", "fixed") else [])
