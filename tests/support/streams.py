# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for ``cupy.cuda``: streams and events that know which work comes after which."""

import contextlib


class Cuda:
    """Streams that run nothing. ``does(name)`` puts work on the current one, and ``after`` asks for the order."""

    def __init__(self):
        self.before = {}  # work: all work that must be done before
        self.main = self.current = ModelStream(self)
        self.streams = [self.main]

    def get_current_stream(self):
        return self.current

    def Stream(self, **options):  # noqa: N802 - CuPy's name
        self.streams.append(ModelStream(self, **options))
        return self.streams[-1]

    def Event(self, **options):  # noqa: N802
        return ModelEvent(**options)

    def does(self, work):
        self.before[work] = set(self.current.past)
        self.current.past.add(work)

    def after(self, late, early):
        return early in self.before[late]

    def unordered(self, a, b):
        return not (self.after(a, b) or self.after(b, a))


class ModelStream:
    def __init__(self, cuda, non_blocking=False, priority=0):
        self.cuda, self.non_blocking, self.priority = cuda, non_blocking, priority
        self.past = set()
        self.captures = False
        self._outside = []

    def __enter__(self):
        self._outside.append(self.cuda.current)
        self.cuda.current = self
        return self

    def __exit__(self, *error):
        self.cuda.current = self._outside.pop()

    def wait_event(self, event):
        assert event.past is not None, "an event that was never recorded orders nothing"
        self.past |= event.past
        self.captures = self.captures or event.captured

    @contextlib.contextmanager
    def capture(self):
        """As a capture of this stream: streams that wait for its events are part of it, and must join."""
        self.captures = True
        yield
        for stream in self.cuda.streams:
            if stream.captures and stream is not self:
                assert stream.past <= self.past, "a branch of the capture has not joined"
            stream.captures = False


class ModelEvent:
    def __init__(self, block=False, disable_timing=False):
        assert disable_timing, "events with times cost more"
        self.past, self.captured = None, False

    def record(self, stream):
        self.past, self.captured = set(stream.past), stream.captures
