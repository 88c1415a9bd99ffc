"""How a deployment stands, read from its logs and files: who is there, which round, what was late or refused."""

import contextlib
import os
import shutil
import socket
import ssl
import time
from collections import Counter
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple

from apiece.deploy.config import read_server, read_site
from apiece.deploy.journal import read_log
from apiece.deploy.keys import days_left
from apiece.deploy.roster import read_roster
from apiece.engines.remote.letter import minor_version
from apiece.errors import UserError

LEAST_FREE = 1e9  # bytes of a disk
LEAST_DAYS = 30.0
LEAST_SKEW = 30.0  # seconds


def server_status(project: Path) -> dict[str, Any]:
    """The state of a run, as its server's folder tells it."""
    config, roster = read_server(project / "server"), read_roster(project / "roster.toml")
    log = read_log(project / "server" / "log.jsonl")
    rounds = [line for line in log if line.get("event") == "round"]
    late, refused = Counter[int](), Counter[int]()
    for line in log:
        late.update(line.get("clients", []) if line.get("event") == "late" else [])
        refused.update(line.get("clients", []) if line.get("event") == "uncounted" else [])
        if line.get("event") == "refused" and isinstance(line.get("client"), int):
            refused[line["client"]] += 1
    last = rounds[-1] if rounds else {}
    there = next((set(line["clients"]) for line in reversed(log) if line.get("event") == "present"), set[int]())
    state = project / "server" / "state"
    begun = max((at for at, line in enumerate(log) if line.get("event") == "begun"), default=0)
    failed = [line["why"] for line in log[begun:] if line.get("event") == "failed"]  # and was not begun anew since
    stands = "finished" if (state / "finished").exists() else "failed" if failed else "running" if log else "not begun"
    return {
        "run": config.run,
        "state": stands,
        "why": failed[-1] if failed and stands == "failed" else None,
        "row": last.get("row"),
        "round": last.get("round"),
        "answers": last.get("answers"),
        "seconds": last.get("seconds"),
        "bytes_up": sum(line.get("bytes_up", 0) for line in rounds),
        "bytes_down": sum(line.get("bytes_down", 0) for line in rounds),
        "last_event": log[-1]["time"] if log else None,
        "sites": [
            {
                "name": name,
                "number": i,
                "newcomer": i >= roster.population,
                "there": i in there if stands == "running" else None,
                "late": late[i],
                "refused": refused[i],
            }
            for i, name in enumerate(roster.names)
        ],
    }


def site_status(folder: Path) -> dict[str, Any]:
    """The state of a site, from its own folder."""
    config, log = read_site(folder), read_log(folder / "log.jsonl")
    events = Counter(line.get("event") for line in log)
    models = sorted((folder / "run" / "models").glob("*.safetensors"))
    word = (
        "finished" if events["finished"] else "taking part" if events["answered"] else "waiting" if log else "not begun"
    )
    return {
        "site": config.name,
        "run": config.run,
        "state": word,
        "answered": events["answered"],
        "refused": events["refused"],
        "unreachable": events["unreachable"],
        "models": [path.stem for path in models],
        "last_event": log[-1]["time"] if log else None,
        "last_refusal": next((line["why"] for line in reversed(log) if line.get("event") == "refused"), None),
    }


class Check(NamedTuple):
    """One thing that was looked at."""

    what: str
    good: bool
    said: str


def examine(folder: Path) -> list[Check]:
    """What is well and what is not, at a site (a folder with site.toml) or at a server (with server.toml)."""
    if (folder / "site.toml").exists():
        return _site(folder)
    if (folder / "server.toml").exists():
        return _server(folder)
    if (folder / "server" / "server.toml").exists():
        return _server(folder / "server")
    raise UserError(f"{folder} is neither a site's folder (site.toml) nor a server's (server.toml)")


def _site(folder: Path) -> list[Check]:
    from apiece.deploy.rows import read_rows

    config = read_site(folder)
    found = [_version(), _disk(folder), _secret(folder / config.key), _certificate(folder / config.ca)]
    if (folder / config.ca).is_file():
        found += _line(config.server, folder / config.ca)
    try:
        rows = read_rows(config, folder)
        told = rows.survey()
        sizes = ", ".join(f"{count} {part}" for part, count in told["sizes"].items())
        found.append(Check("data", True, f"{len(told['columns'])} columns; rows: {sizes}"))
    except UserError as error:
        found.append(Check("data", False, str(error)))
    return found


def _server(folder: Path) -> list[Check]:
    config = read_server(folder)
    found = [_version(), _disk(folder), _secret(folder / "server.key"), _secret(folder / "superexec.secret")]
    found += [_certificate(folder / "server.crt"), _certificate(folder.parent / "ca.crt")]
    host, _, port = config.address.rpartition(":")
    local = host.strip("[]") in ("127.0.0.1", "::1", "localhost")
    said = f"SuperLink listens at {config.address}"
    said += "" if local else ": whoever reaches it can command the run; keep it on loopback, behind proxy.conf"
    found.append(Check("control side", local, said))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]") if local else "0.0.0.0", int(port)))
            found.append(Check("port", True, f"{port} is free"))
        except OSError as error:
            running = bool(read_log(folder / "log.jsonl"))
            found.append(Check("port", running, f"{port} is in use ({error.strerror})"))
    try:
        roster = read_roster(folder.parent / "roster.toml")
        found.append(Check("roster", True, f"{len(roster.sites)} sites, {roster.population} of them train"))
    except UserError as error:
        found.append(Check("roster", False, str(error)))
    return found


def _version() -> Check:
    from importlib.metadata import PackageNotFoundError, version

    try:
        flower = version("flwr")
    except PackageNotFoundError:
        return Check("versions", False, "Flower is not installed: pip install 'apiece[flower]'")
    return Check("versions", flower == "1.41.0", f"apiece {minor_version()}, flwr {flower} (1.41.0 is needed)")


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    return Check("disk", free > LEAST_FREE, f"{free / 1e9:.1f} GB free at {folder}")


def _secret(path: Path) -> Check:
    if not path.exists():
        return Check("key", False, f"there is no {path}")
    open_to_all = os.name == "posix" and bool(path.stat().st_mode & 0o077)
    return Check(
        "key", not open_to_all, f"{path.name} {'can be read by others: chmod 600' if open_to_all else 'is private'}"
    )


def _certificate(path: Path) -> Check:
    try:
        left = days_left(path)
    except UserError as error:
        return Check("certificate", False, str(error))
    return Check("certificate", left > LEAST_DAYS, f"{path.name} is valid for {left:.0f} days")


def _line(address: str, ca: Path) -> list[Check]:
    """Whether the server answers with a certificate of the site's authority, and how far its clock is from ours."""
    from http.client import HTTPException, HTTPSConnection

    host, _, port = address.rpartition(":")
    unknown = Check("clock", True, "not compared with the server's")
    try:
        context = ssl.create_default_context(cafile=str(ca))
        line = HTTPSConnection(host.strip("[]"), int(port), timeout=5.0, context=context)
        with contextlib.closing(line):
            line.request("GET", "/v1/fleet/")
            told = line.getresponse().getheader("Date")
    except ssl.SSLCertVerificationError as error:
        said = (f"the certificate of {address} does not fit {ca.name} ({error.verify_message}): copy the ca.crt of "
                "this server's project, and check the clock and that nobody else answers there")  # fmt: skip
        return [Check("server", False, said), unknown]
    except ssl.SSLError as error:
        said = f"{address} does not speak TLS ({error.reason or error}): check the address and the proxy"
        return [Check("server", False, said), unknown]
    except (OSError, HTTPException) as error:
        return [Check("server", False, f"nobody answers at {address} ({error}); is the server running?"), unknown]
    found = [Check("server", True, f"{address} answers, with a certificate of {ca.name}")]
    with contextlib.suppress(TypeError, ValueError):  # it tells no time
        skew = abs(parsedate_to_datetime(told or "").timestamp() - time.time())
        mend = "" if skew < LEAST_SKEW else ": set both by the same time server"
        return [*found, Check("clock", skew < LEAST_SKEW, f"{skew:.0f} s apart from the server's{mend}")]
    return [*found, unknown]
