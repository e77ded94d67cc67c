"""The gateway as a proxy of bytes, before a small gRPC server of the test's own."""

import asyncio
import contextlib
import queue
import threading
import time
from concurrent import futures

import grpc
import pytest
from google.cloud.firestore_v1 import types

from counters.testing import Bill, Gateway, LostAnswer, LostRequest, Refused

SERVICE = "/google.firestore.v1.Firestore/"


class Server(grpc.GenericRpcHandler):
    """Answers every call as ``answer(request, context)`` says, which yields the messages.

    Notes what came: ``calls``, and in ``ended`` the methods whose calls have ended.
    """

    def __init__(self):
        self.answer = lambda request, _: iter([request])
        self.calls = queue.SimpleQueue()
        self.ended = queue.SimpleQueue()

    def service(self, details):
        method = details.method.rpartition("/")[2]

        def serve(request, context):
            context.add_callback(lambda: self.ended.put(method))
            self.calls.put((method, dict(context.invocation_metadata()), context.time_remaining()))
            return self.answer(request, context)

        if method in ("Listen", "Write", "Strange"):
            return grpc.stream_stream_rpc_method_handler(serve)
        return grpc.unary_stream_rpc_method_handler(serve)


@pytest.fixture
def server():
    handler = Server()
    with futures.ThreadPoolExecutor(8) as threads:
        options = [("grpc.max_receive_message_length", -1)]
        grpc_server = grpc.server(threads, [handler], options=options)
        port = grpc_server.add_insecure_port("127.0.0.1:0")
        grpc_server.start()
        handler.host = f"127.0.0.1:{port}"
        yield handler
        grpc_server.stop(None).wait()


@pytest.fixture
def gateway(server):
    with Gateway(server.host) as gateway:
        yield gateway


@pytest.fixture
def channel(gateway):
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(gateway.host, options=options) as channel:
        yield channel


def eventually(condition):
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_bytes_go_through_unread_in_both_directions(server, channel):
    server.answer = lambda request, _: iter([request[::-1]])
    assert channel.unary_unary(SERVICE + "Commit")(b"no message") == b"egassem on"
    assert channel.unary_unary(SERVICE + "Commit")(b"") == b""


def test_messages_of_many_megabytes_pass(channel):
    message = bytes(6_000_000)
    assert channel.unary_unary(SERVICE + "Commit")(message) == message


def test_a_stream_of_answers_arrives_as_it_is_sent(server, channel):
    go_on = threading.Event()

    def answer(request, _):
        yield request
        assert go_on.wait(30)
        yield b"end"

    server.answer = answer
    call = channel.unary_stream(SERVICE + "RunQuery")(b"first")
    assert next(call) == b"first"
    go_on.set()
    assert list(call) == [b"end"]


@pytest.mark.parametrize("method", ["Listen", "Strange"])
def test_a_stream_of_requests_meets_its_answers_one_by_one(server, channel, method):
    server.answer = lambda requests, _: (request.upper() for request in requests)
    requests = queue.SimpleQueue()
    call = channel.stream_stream(SERVICE + method)(iter(requests.get, None))
    for message in (b"a", b"b"):
        requests.put(message)
        assert next(call) == message.upper()
    requests.put(None)
    assert list(call) == []


def test_a_method_that_firestore_does_not_have_passes_too(server, channel):
    server.answer = lambda requests, _: iter(list(requests))
    assert channel.unary_unary("/other.Service/Strange")(b"x") == b"x"


def test_metadata_passes_in_both_directions(server, channel):
    def answer(request, context):
        context.send_initial_metadata((("first", "1"), ("raw-bin", b"\x00\xff")))
        context.set_trailing_metadata((("last", "2"),))
        yield request

    server.answer = answer
    sent = (("authorization", "Bearer owner"), ("google-cloud-resource-prefix", "p"))
    _, call = channel.unary_unary(SERVICE + "Commit").with_call(b"", metadata=sent)

    _, received, _ = server.calls.get(timeout=30)
    assert set(sent) <= set(received.items())
    assert set(call.initial_metadata()) == {("first", "1"), ("raw-bin", b"\x00\xff")}
    assert set(call.trailing_metadata()) == {("last", "2")}


@pytest.mark.parametrize("messages", [0, 2])
def test_an_error_keeps_its_code_details_and_trailing_metadata(server, channel, messages):
    def answer(request, context):
        yield from [request] * messages
        context.set_trailing_metadata((("grpc-status-details-bin", b"\x08\x0a"), ("retry", "no")))
        context.abort(grpc.StatusCode.ABORTED, "contention: déjà vu")

    server.answer = answer
    call = channel.unary_stream(SERVICE + "RunQuery")(b"row")
    with pytest.raises(grpc.RpcError):
        assert list(call) == []
    assert call.code() is grpc.StatusCode.ABORTED
    assert call.details() == "contention: déjà vu"
    assert ("grpc-status-details-bin", b"\x08\x0a") in call.trailing_metadata()
    assert ("retry", "no") in call.trailing_metadata()


def test_a_deadline_reaches_the_server_and_a_stream_without_one_gets_none(server, channel):
    list(channel.unary_stream(SERVICE + "RunQuery")(b"", timeout=100))
    list(channel.unary_stream(SERVICE + "RunQuery")(b""))
    _, _, with_deadline = server.calls.get(timeout=30)
    _, _, without = server.calls.get(timeout=30)
    assert 0 < with_deadline < 110  # gRPC rounds it on the way
    assert without > 1e8


@pytest.mark.parametrize("method", ["RunQuery", "Listen"])
def test_a_client_that_gives_up_ends_the_call_at_the_server(server, channel, method):
    stop = threading.Event()

    def answer(_request, _context):
        yield b"row"
        stop.wait(30)

    server.answer = answer
    if method == "Listen":
        call = channel.stream_stream(SERVICE + method)(iter([b"x"]))
    else:
        call = channel.unary_stream(SERVICE + method)(b"x")
    assert next(call) == b"row"
    call.cancel()
    assert server.ended.get(timeout=30) == method
    stop.set()


def test_a_commit_whose_client_gives_up_is_carried_out_and_billed(server, gateway, channel):
    go_on = threading.Event()

    def answer(_request, _context):
        assert go_on.wait(30)
        yield b""

    server.answer = answer
    request = types.CommitRequest.serialize(types.CommitRequest(writes=[{"delete": "a"}]))
    with gateway.measure() as bill:
        call = channel.unary_unary(SERVICE + "Commit").future(request)
        server.calls.get(timeout=30)
        call.cancel()
        go_on.set()
        assert server.ended.get(timeout=30) == "Commit"
        # The server is done; the gateway learns of it in a moment, with nobody to tell it to.
        assert eventually(lambda: bill.deletes)
    assert bill.deletes == 1


def test_a_target_that_is_not_there_is_unavailable():
    with Gateway("127.0.0.1:1") as gateway, grpc.insecure_channel(gateway.host) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(SERVICE + "Commit")(b"", timeout=30)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_calls_are_counted_when_they_come_failed_ones_too(server, gateway, channel):
    commit = channel.unary_unary(SERVICE + "Commit")
    request = types.CommitRequest.serialize(types.CommitRequest(writes=[{"delete": "a"}]))
    server.answer = lambda _request, _context: iter([b""])
    with gateway.measure() as bill:
        commit(request)
        gateway.script(Refused("Commit"), LostAnswer("Commit", nth=2))
        for _ in range(2):
            with pytest.raises(grpc.RpcError):
                commit(request)
        channel.unary_unary(SERVICE + "Rollback")(b"")
    commit(request)

    assert bill.rpcs == {"Commit": 3, "Rollback": 1}
    assert bill.round_trips == 4
    # The one whose answer was lost was applied, and is billed; the refused one is not.
    assert (bill.reads, bill.writes, bill.deletes) == (0, 0, 2)


def test_many_threads_are_counted_to_the_last_call(gateway, channel):
    commit = channel.unary_unary(SERVICE + "Rollback")
    with gateway.measure() as bill, futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(commit, [b""] * 400)) == [b""] * 400
    assert bill == Bill(rpcs=bill.rpcs)
    assert bill.rpcs == {"Rollback": 400}


def test_asynchronous_clients_pass_too(gateway):
    async def main():
        async with grpc.aio.insecure_channel(gateway.host) as channel:
            commit = channel.unary_unary(SERVICE + "Commit")
            return await asyncio.gather(*(commit(b"%d" % n) for n in range(20)))

    assert asyncio.run(main()) == [b"%d" % n for n in range(20)]


def test_closing_ends_calls_that_would_wait_for_ever(server):
    released = threading.Event()

    def answer(_request, _context):
        released.wait(20)
        yield b""

    server.answer = answer
    with contextlib.ExitStack() as stack:
        with Gateway(server.host) as gateway:
            channel = stack.enter_context(grpc.insecure_channel(gateway.host))
            gateway.script(LostRequest("Rollback", code=None), LostAnswer("RunQuery"))
            calls = [
                channel.unary_unary(SERVICE + "Rollback").future(b""),
                channel.unary_unary(SERVICE + "Commit").future(b""),
                channel.unary_unary(SERVICE + "RunQuery").future(b""),
                channel.stream_stream(SERVICE + "Listen")(iter(threading.Event().wait, None)),
            ]
            arrived = {server.calls.get(timeout=30)[0] for _ in range(2)}
            assert arrived <= {"Commit", "RunQuery", "Listen"}
        released.set()
        for call in calls:
            with pytest.raises(grpc.RpcError):
                call.result(timeout=30)


def test_a_gateway_is_used_within_its_block(server):
    gateway = Gateway(server.host)
    with pytest.raises(RuntimeError, match="with Gateway"):
        _ = gateway.host
    with gateway:
        first = gateway.host
    with gateway:
        assert gateway.host != first
    with pytest.raises(RuntimeError, match="with Gateway"):
        gateway.cut()
