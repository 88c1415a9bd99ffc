"""Flower, all of it that apiece knows: the post of a server, the line of a site, keys registered, a run begun.

Flower 1.41 carries letters as bytes in an ArrayRecord, over TLS, to nodes known by their keys. A server is a ServerApp
that drives the Grid. A site is one long-lived process on the Fleet API: it runs installed apiece only, never the app
that Flower would send it. That line uses modules which Flower does not promise to keep: they are used here alone, and
the version is pinned exactly.
"""

import contextlib
import hashlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from apiece.errors import UserError


class MissingFlower(UserError, ImportError):
    """Flower is not installed, or another version of it."""


try:
    import httpx
    from cryptography.hazmat.primitives import serialization
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.cli.build import build_fab_from_disk
    from flwr.common.serde import fab_to_proto, message_from_proto, message_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
    from flwr.proto.fleet_pb2 import (
        ActivateNodeRequest,
        DeactivateNodeRequest,
        PullMessagesRequest,
        PushMessagesRequest,
    )
    from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
    from flwr.proto.node_pb2 import Node
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.error import FlowerError
    from flwr.supercore.fab import Fab
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        iterate_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_protobuf_utils import (
        make_pull_object_fn_protobuf,
        make_push_object_fn_protobuf,
    )
    from flwr.supercore.inflatable.inflatable_utils import (
        ObjectPullError,
        ObjectPushError,
        ObjectUnavailableError,
        inflate_object_from_contents,
        pull_objects,
        push_objects,
    )
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
except ImportError as error:
    if (error.name or "").split(".")[0] in ("flwr", "httpx", "cryptography"):
        raise MissingFlower("real sites are reached through Flower: pip install 'apiece[flower]'") from None
    raise MissingFlower(
        f"this version of Flower is another than 1.41.0 ({error}): pip install 'apiece[flower]'"
    ) from None

RECORD, NAME = "apiece", "letter"
KIND = "query.apiece"  # a kind of message that no strategy of Flower's own answers
HEARTBEAT = 10.0  # seconds, the least that Flower takes: a site that was killed is known to be gone after two of them
POLL = 0.1  # seconds between looks for a letter; after a while without one, less often
IDLE = 1.0
INACTIVE = 2004  # what Flower says to a key that it does not know, and to one that is in use
PIECE = 5 << 20  # bytes of a letter that Flower carries as one object
STALLED = 30.0  # seconds without a further piece of an answer: its site died while it sent it
TTL = 24 * 3600.0  # seconds that Flower keeps a letter; deadlines are the server's own


class Refused(UserError):
    """The other side will not have this site: trying again is of no use before somebody does something."""


class Busy(Refused):
    """Nor this one; but a process that was killed holds its key for a while, and a new server learns keys."""


class Unreachable(UserError):
    """Nobody answers: it may be better in a while."""


def pack(wire: bytes) -> RecordDict:
    """Bytes as Flower carries them best, in pieces of 5 MiB.

    >>> unpack(pack(b"bytes"))
    b'bytes'
    """
    letter = Array(dtype="uint8", shape=(len(wire),), stype="apiece", data=wire)
    return RecordDict({RECORD: ArrayRecord({NAME: letter})})


def unpack(content: RecordDict) -> bytes:
    """The bytes that `pack` packed; nothing of what is no letter."""
    try:
        return bytes(content.array_records[RECORD][NAME].data)
    except (KeyError, AttributeError, TypeError):
        return b""


class FlowerPost:
    """The post of a server: `clients` tells the client's number of every public key that is known now."""

    def __init__(self, grid: Any, clients: Callable[[], Mapping[bytes, int]]) -> None:
        self.grid, self.clients, self.limit = grid, clients, 1 << 28
        self.open: dict[str, tuple[int, bytes]] = {}  # letters that are out, by Flower's name: to whom, which
        self.awaited: dict[int, bytes] = {}  # by client, the letter whose answer somebody waits for
        self._nodes: dict[int, int] = {}
        self._looked = -1e9

    def present(self) -> set[int]:
        """The clients whose nodes are online; asked at most once a second."""
        if time.monotonic() - self._looked > 1.0:
            online = [node for node in self.grid.get_nodes() if node.status in ("online", "")]
            numbers = self.clients()
            known = [(numbers.get(bytes(node.public_key)), node.node_id) for node in online]
            self._nodes = {i: node for i, node in known if i is not None}
            self._looked = time.monotonic()
        return set(self._nodes)

    def send(self, letters: Mapping[int, bytes]) -> None:
        """One message to each node."""
        self.present()
        who = [i for i in letters if i in self._nodes]
        made = [Message(content=pack(letters[i]), dst_node_id=self._nodes[i], message_type=KIND, ttl=TTL) for i in who]
        for i, name in zip(who, self.grid.push_messages(made) if made else (), strict=False):
            if name:
                self.awaited[i] = hashlib.sha256(letters[i]).digest()
                self.open[name] = i, self.awaited[i]

    def collect(self, seconds: float) -> list[tuple[int, bytes | None]]:
        """What came back within so many seconds; an error of Flower's is a letter that got lost. Answers to letters of
        which nobody waits for one any more are fetched, so that SuperLink forgets them, and dropped."""
        end = time.monotonic() + seconds
        while True:
            found: list[tuple[int, bytes | None]] = []
            for name, wire in self._fetched() if self.open else ():
                i, letter = self.open.pop(name, (None, b""))
                if i is not None and self.awaited.get(i) == letter:
                    del self.awaited[i]
                    found.append((i, wire))
            if found or time.monotonic() >= end:
                return found
            time.sleep(POLL)

    def _fetched(self) -> Iterator[tuple[str, bytes | None]]:
        """(Flower's name of a letter, the answer to it). The grid's own way would fetch whatever a site sent, and wait
        two hours for one that died while it sent: here never more than the limit is held."""
        api, run = self.grid._runtime_client, self.grid.run.run_id
        fetch = make_pull_object_fn_protobuf(api.PullObject, self.grid.node, run)
        found = api.PullMessages(PullAppMessagesRequest(message_ids=list(self.open)))
        for about, objects in zip(found.messages_list, found.message_object_trees, strict=True):
            name = about.metadata.message_id
            try:
                contents = _within(self.limit, [one.object_id for one in iterate_object_tree(objects)], fetch)
                message = None if contents is None else inflate_object_from_contents(name, contents)
                error = message is not None and message.has_error()
                wire = bytes(self.limit + 1) if message is None else None if error else unpack(message.content)
            except ObjectPullError:
                wire = None
            except httpx.HTTPError:
                raise
            except Exception:  # objects that are no message: the site is not what it should be
                wire = b""
            confirm = ConfirmMessageReceivedRequest(node=self.grid.node, run_id=run, message_object_id=name)
            api.ConfirmMessageReceived(confirm)
            yield about.metadata.reply_to_message_id, wire


def _within(limit: int, names: list[str], fetch: Callable[[str], bytes]) -> dict[str, bytes] | None:
    """Objects by name; None if they are more than a letter of so many bytes has, the rest unread."""
    found, held = dict[str, bytes](), 0
    if len(names) > 16 + 2 * limit // PIECE:
        return None
    for name in names:
        end = time.monotonic() + STALLED
        while name not in found:
            try:
                found[name] = fetch(name)
            except ObjectUnavailableError:
                if time.monotonic() > end:
                    raise ObjectPullError(name, "its site stopped sending") from None
                time.sleep(POLL)
        held += len(found[name])
        if held > limit + PIECE:
            return None
    return found


def node_key(public_key: bytes) -> bytes:
    """A public key (the text of a .pub file) as Flower tells of nodes.

    >>> node_key(b"ssh-rsa nonsense")
    Traceback (most recent call last):
    apiece.errors.UserError: this is no public key of a site: ssh-rsa nonsense
    """
    try:
        return public_key_to_bytes(serialization.load_ssh_public_key(public_key))
    except Exception:
        raise UserError(f"this is no public key of a site: {public_key[:40].decode('utf-8', 'replace')}") from None


class Line:
    """A site's connection: activated with its key, kept alive by heartbeats, closed at the end."""

    def __init__(self, address: str, ca: Path, key: Path, wait: float = 10.0) -> None:
        try:
            private = serialization.load_ssh_private_key(key.read_bytes(), None)
        except FileNotFoundError:
            raise UserError(f"there is no key {key}; apiece deploy init makes it") from None
        except ValueError as error:
            raise UserError(f"{key} is no private key ({error}); apiece deploy init makes one") from None
        if not ca.is_file():
            raise UserError(f"there is no certificate {ca}; copy ca.crt of the server's project")
        intercept = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(private, private.public_key()),
        ]
        self.address, self._public = address, public_key_to_bytes(private.public_key())
        try:
            self._client = FleetHttpClient.from_server_address(address, False, str(ca), interceptors=intercept)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UserError(f"the certificate {ca} cannot be used: {error}") from None
        self._stop, self._gone = threading.Event(), False
        self._node = self._activate()
        self._beat = threading.Thread(target=self._heartbeats, daemon=True)
        self._beat.start()

    def receive(self) -> tuple[Any, bytes] | None:
        """(what to answer to, a letter), if there is one."""
        found = self._call(self._client.PullMessages, PullMessagesRequest(node=self._node))
        if self._gone:
            raise Unreachable(f"{self.address} no longer knows this site: its server was started again")
        if not found.messages_list:
            return None
        about, objects = message_from_proto(found.messages_list[0]), found.message_object_trees[0]
        run = about.metadata.run_id
        pull = make_pull_object_fn_protobuf(self._client.PullObject, self._node, run)
        names = [one.object_id for one in iterate_object_tree(objects)]
        fetch = lambda: pull_objects(names, pull_object_fn=pull, max_time=300.0, initial_backoff=0.1)
        contents = told(fetch, self.address)
        confirm = ConfirmMessageReceivedRequest(
            node=self._node, run_id=run, message_object_id=about.metadata.message_id
        )
        self._call(self._client.ConfirmMessageReceived, confirm)
        message = inflate_object_from_contents(about.metadata.message_id, contents)
        message.metadata.__dict__["_message_id"] = about.metadata.message_id
        return message, unpack(message.content)

    def reply(self, to: Any, wire: bytes, seconds: float) -> None:
        """Send the answer to a letter."""
        message = Message(content=pack(wire), reply_to=to)
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            objects, shape = get_all_nested_objects(message), get_object_tree(message)
            request = PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(_without_content(message))],
                message_object_trees=[shape],
                clientapp_runtime_list=[seconds],
            )
            answer = self._call(self._client.PushMessages, request)
            put = make_push_object_fn_protobuf(
                self._client.PushObject, self._node, to.metadata.run_id, answer.session_id
            )
            wanted = set(answer.objects_to_push)
            told(lambda: push_objects(objects, push_object_fn=put, object_ids_to_push=wanted), self.address)

    def close(self) -> None:
        """Say goodbye, so that the same key can come back at once."""
        self._stop.set()
        with contextlib.suppress(Exception):
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))
        with contextlib.suppress(Exception):
            self._client.close()

    def _activate(self) -> Any:
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        return Node(node_id=self._call(self._client.ActivateNode, request).node_id)

    def _heartbeats(self) -> None:
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT)
        while not self._stop.wait(HEARTBEAT / 2):
            try:
                self._gone = not self._client.SendNodeHeartbeat(request).success
            except httpx.HTTPStatusError as error:
                self._gone = error.response.status_code in (401, 403, 404)
            except Exception:  # what is wrong with the line, the next letter finds out
                continue

    def _call(self, call: Callable[[Any], Any], request: Any) -> Any:
        return told(lambda: call(request), self.address)


def told(call: Callable[[], Any], address: str) -> Any:
    """What a call gives; what is wrong with it in words that say what to do."""
    try:
        return call()
    except httpx.HTTPStatusError as error:
        said = FlowerError.from_json(error.response.text)
        code, text = (said.code, said.message) if said else (error.response.status_code, error.response.text[:200])
        if error.response.status_code in (502, 503, 504):
            raise Unreachable(f"the proxy before {address} reaches no server ({code}); start it") from None
        if code == INACTIVE:  # Flower does not tell which of the two it is
            raise Busy(f"{address} does not let this site in ({code}): its key is not registered (apiece deploy server "
                       "registers those in roster.toml), or another process runs with it") from None  # fmt: skip
        raise Refused(f"{address} refuses this site ({code}: {text})") from None
    except httpx.ConnectError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise Refused(f"the certificate of {address} is not of the authority in ca.crt ({error}): copy the ca.crt "
                          "of this server's project, and check that nobody else answers there") from None  # fmt: skip
        if "SSL" in str(error).upper():
            raise Refused(f"{address} does not speak TLS ({error}): letters are never sent in plain text; check the "
                          "address and the proxy") from None  # fmt: skip
        raise Unreachable(f"nobody answers at {address} ({error})") from None
    except httpx.RemoteProtocolError as error:
        raise Unreachable(f"{address} broke off ({error})") from None
    except (ObjectPullError, ObjectPushError) as error:  # its server died in the middle of a letter
        raise Unreachable(f"{address} lost a piece of a letter ({error})") from None
    except httpx.TransportError as error:
        raise Unreachable(f"{address} cannot be reached ({type(error).__name__}: {error})") from None


def _without_content(message: Message) -> Message:
    from flwr.app.message import remove_content_from_message

    return remove_content_from_message(message)


@contextlib.contextmanager
def control(address: str, ca: Path) -> Iterator[Any]:
    """The control side of a SuperLink, which has no authentication: it must be reachable by the server alone."""
    client = ControlHttpClient.from_server_address(
        server_address=address,
        insecure=False,
        root_certificates=ca.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
    try:
        yield client
    finally:
        client.close()


def register(client: Any, public_key: bytes, name: str) -> bool:
    """Let a key in; whether it was new."""
    try:
        client.RegisterNode(RegisterNodeRequest(public_key=node_key(public_key), name=name))
        return True
    except httpx.HTTPStatusError as error:
        if (said := FlowerError.from_json(error.response.text)) and "already" in f"{said.message}".lower():
            return False
        if error.response.status_code in (409,):
            return False
        raise UserError(f"the key of '{name}' cannot be registered: {error.response.text[:200]}") from None


def begin_run(client: Any, app: Path, config: dict[str, str]) -> int:
    """Begin a run of the app in a folder, with values of its config that hold here; its number."""
    content = build_fab_from_disk(app)
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    request = StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(config))
    return int(client.StartRun(request).run_id)


def run_status(client: Any, run: int) -> tuple[str, str]:
    """(status, sub-status) of a run: "running", "finished" ..."""
    from flwr.proto.control_pb2 import ListRunsRequest

    found = client.ListRuns(ListRunsRequest(run_id=run)).run_dict.get(run)
    return ("", "") if found is None else (found.status.status, found.status.sub_status)
