"""Two drivers, one meaning: the same steps take the same course, blocking or awaited."""

import asyncio
import gc
import threading
import time

import pytest
from google.api_core import exceptions

from counters.steps import Gather, Invoke, Rpc, Sleep, run, run_async


class Refuse:
    """A request whose answer is an error."""

    def __init__(self, error):
        self.error = error


def rpc(request, **options):
    return Rpc("echo", request, 1.0, **options)


def answer_to(request):
    if isinstance(request, Refuse):
        raise request.error
    return f"answer to {request}"


class Echo:
    """Answers each request; counts how many it answers at once."""

    def __init__(self):
        self.now = self.most = 0
        self._lock = threading.Lock()

    def _count(self, change):
        with self._lock:
            self.now += change
            self.most = max(self.most, self.now)

    def send(self, rpc):
        self._count(1)
        time.sleep(0.002)
        self._count(-1)
        return answer_to(rpc.request)


class AsyncEcho(Echo):
    async def send(self, rpc):
        self._count(1)
        try:
            await asyncio.sleep(0.002)
        finally:
            self._count(-1)
        return answer_to(rpc.request)


def blocking(steps, echo=None):
    return run(steps, echo or Echo())


def awaited(steps, echo=None):
    return asyncio.run(run_async(steps, echo or AsyncEcho()))


both = pytest.mark.parametrize(("drive", "echo"), [(blocking, Echo), (awaited, AsyncEcho)])


@both
def test_answers_are_sent_back_and_the_result_is_returned(drive, echo):
    def steps():
        first = yield rpc("one")
        pause = yield Sleep(0.001)
        second = yield rpc("two")
        return first, pause, second

    assert drive(steps(), echo()) == ("answer to one", None, "answer to two")


@both
def test_steps_that_ask_for_nothing_return_at_once(drive, echo):
    def steps():
        return 7
        yield

    assert drive(steps(), echo()) == 7


@both
def test_an_error_is_thrown_into_the_steps_which_may_go_on(drive, echo):
    def steps():
        try:
            yield rpc(Refuse(exceptions.Aborted("no")))
        except exceptions.Aborted as error:
            return error.message, (yield rpc("again"))

    assert drive(steps(), echo()) == ("no", "answer to again")


@both
def test_an_error_that_the_steps_do_not_take_escapes_as_it_is(drive, echo):
    error = exceptions.Aborted("no")

    def steps():
        yield rpc(Refuse(error))

    with pytest.raises(exceptions.Aborted) as caught:
        drive(steps(), echo())
    assert caught.value is error


@both
def test_an_error_of_the_steps_own_escapes_as_it_is(drive, echo):
    def steps():
        yield rpc("one")
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        drive(steps(), echo())


@both
def test_a_pause_takes_its_time(drive, echo):
    def steps():
        yield Sleep(0.05)

    started = time.monotonic()
    drive(steps(), echo())
    assert time.monotonic() - started >= 0.05


def test_a_function_of_the_callers_is_called_or_awaited():
    def steps(function):
        return (yield Invoke(function))

    async def coroutine():
        await asyncio.sleep(0)
        return 7

    assert blocking(steps(lambda: 7)) == 7
    assert awaited(steps(coroutine)) == 7


# Several at once.


def one(request, log=None):
    try:
        return (yield rpc(request))
    finally:
        if log is not None:
            log.append(request)


def all_of(steps, limit):
    return (yield Gather(steps, limit))


@both
@pytest.mark.parametrize("number", [0, 1, 5])
def test_results_come_in_the_order_of_the_steps(drive, echo, number):
    steps = [one(index) for index in range(number)]
    assert drive(all_of(steps, 2), echo()) == [f"answer to {index}" for index in range(number)]


@both
@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_than_the_limit_run_at_once_and_as_many_do(drive, echo, limit):
    echo = echo()
    drive(all_of([one(index) for index in range(12)], limit), echo)
    assert echo.most == limit


@both
def test_an_error_is_raised_once_no_step_runs_any_more(drive, echo):
    error = exceptions.Aborted("no")
    log = []
    steps = [one("before", log), one(Refuse(error), log), *(one(index, log) for index in range(9))]
    echo = echo()
    with pytest.raises(exceptions.Aborted) as caught:
        drive(all_of(steps, 3), echo)
    assert caught.value is error
    assert echo.now == 0
    ended = len(log)
    time.sleep(0.02)
    assert len(log) == ended
    assert 2 <= ended < 11


@both
def test_of_two_errors_the_first_is_raised(drive, echo):
    steps = [one(Refuse(LookupError("first"))), one(Refuse(KeyError("second")))]
    with pytest.raises(LookupError, match="first"):
        drive(all_of(steps, 1), echo())


# Cancellation.


class Gate:
    """Answers once it is opened; knows what was asked and what came to its end."""

    def __init__(self, answer="answer"):
        self.answer = answer
        self.asked = asyncio.Event()
        self.open = asyncio.Event()
        self.finished = False

    async def send(self, _rpc):
        self.asked.set()
        await self.open.wait()
        self.finished = True
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


async def cancelled_while_asking(steps, gate):
    task = asyncio.ensure_future(run_async(steps, gate))
    await gate.asked.wait()
    task.cancel()
    await asyncio.wait({task})
    return task


async def test_a_cancelled_task_throws_cancelled_error_into_the_steps():
    thrown = []

    def steps():
        try:
            yield rpc("one")
        except BaseException as error:
            thrown.append(error)
            raise

    gate = Gate()
    task = await cancelled_while_asking(steps(), gate)
    assert task.cancelled()
    assert [type(error) for error in thrown] == [asyncio.CancelledError]
    gate.open.set()
    await asyncio.sleep(0)
    assert not gate.finished, "the request was given up with the task"


async def test_a_request_that_the_server_cancelled_is_an_error_of_googles_and_no_cancellation():
    """grpc.aio raises CancelledError for both."""
    gate = Gate(answer=asyncio.CancelledError())
    gate.open.set()

    def steps():
        try:
            yield rpc("one")
        except exceptions.Cancelled:
            return "the server's"

    assert await run_async(steps(), gate) == "the server's"


def shielded():
    yield rpc("last word", shielded=True)


async def test_a_shielded_request_is_finished_after_a_cancellation():
    gate = Gate()
    task = await cancelled_while_asking(shielded(), gate)
    assert task.cancelled()
    gate.open.set()
    await asyncio.sleep(0)
    assert gate.finished


def complaints_of_this_loop():
    """What the loop is told of exceptions that nobody looked at."""
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    return told


async def test_a_shielded_request_that_fails_when_nobody_waits_for_it_any_more_is_not_complained_of():
    told = complaints_of_this_loop()
    gate = Gate(answer=exceptions.Aborted("no"))
    await cancelled_while_asking(shielded(), gate)
    gate.open.set()
    await asyncio.sleep(0.001)
    assert gate.finished
    gc.collect()
    assert told == []


async def test_a_request_that_ends_in_an_error_when_it_is_given_up_is_not_complained_of():
    class Stubborn(Gate):
        async def send(self, rpc):
            try:
                await super().send(rpc)
            except asyncio.CancelledError:
                raise exceptions.Aborted("given up") from None

    told = complaints_of_this_loop()
    await cancelled_while_asking(one("one"), Stubborn())
    await asyncio.sleep(0.001)
    gc.collect()
    assert told == []


async def test_the_steps_may_ask_for_a_last_word_after_they_were_cancelled():
    def steps():
        try:
            yield rpc("commit")
        except asyncio.CancelledError:
            yield rpc("rollback", shielded=True)
            raise

    class Both(Gate):
        async def send(self, rpc):
            if rpc.request == "rollback":
                self.rolled_back = True
                return None
            return await super().send(rpc)

    gate = Both()
    task = await cancelled_while_asking(steps(), gate)
    assert task.cancelled()
    assert gate.rolled_back


async def test_cancelling_several_at_once_leaves_none_running():
    gate = Gate()
    log = []
    steps = [one(index, log) for index in range(3)]
    task = await cancelled_while_asking(all_of(steps, 2), gate)
    assert task.cancelled()
    assert sorted(log) == [0, 1]
    assert len(asyncio.all_tasks()) == 1


async def test_when_one_of_several_fails_the_others_may_have_their_last_word_before_it_is_raised():
    last_words = []

    def cut_short():
        try:
            yield rpc("commit")
        except asyncio.CancelledError:
            yield rpc("rollback", shielded=True)
            last_words.append("rollback")
            raise

    class Slow:
        async def send(self, rpc):
            await asyncio.sleep(0.01 if rpc.request == "rollback" else 0)
            if rpc.request == "commit":
                await asyncio.Event().wait()
            return answer_to(rpc.request)

    error = exceptions.Aborted("no")
    with pytest.raises(exceptions.Aborted):
        await run_async(all_of([cut_short(), cut_short(), one(Refuse(error))], 3), Slow())
    assert last_words == ["rollback"] * 2


def test_ctrl_c_is_thrown_into_the_steps_and_escapes():
    thrown = []

    def steps():
        try:
            yield rpc(Refuse(KeyboardInterrupt()))
        except KeyboardInterrupt as error:
            thrown.append(error)
            yield rpc("rollback")
            raise

    with pytest.raises(KeyboardInterrupt):
        blocking(steps())
    assert len(thrown) == 1
