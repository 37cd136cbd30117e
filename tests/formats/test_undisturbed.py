"""Signals wait for the end of a block, and are not lost."""

from __future__ import annotations

import signal
import threading

import pytest

from flashtrie.formats.undisturbed import undisturbed


class Stopped(BaseException):
    pass


@pytest.fixture
def stopping():
    """Handlers that raise, as those of the command line do."""

    def stop(number, frame):
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    yield stop
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits(stopping, number):
    done = []
    with pytest.raises(Stopped):
        with undisturbed():
            with undisturbed():
                signal.raise_signal(number)
                done.append("inner")
            done.append("outer")
    assert done == ["inner", "outer"]
    assert signal.getsignal(number) == stopping


def test_a_signal_and_an_error(stopping):
    with pytest.raises(Stopped) as caught, undisturbed():
        signal.raise_signal(signal.SIGTERM)
        raise KeyError
    assert isinstance(caught.value.__context__, KeyError)


def test_without_a_signal(stopping):
    with pytest.raises(KeyError), undisturbed():
        raise KeyError
    assert signal.getsignal(signal.SIGTERM) == stopping


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with undisturbed():
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread():
    found = []

    def work():
        with undisturbed():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]
