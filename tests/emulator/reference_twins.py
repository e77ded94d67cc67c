"""Reference counts of either twin, behind the one face of ``twins.py``."""

from twins import _Awaited

from counters import AsyncCounters


def children(app, parent, name):
    """``app.children`` of either twin, its calls awaited."""
    if isinstance(app, AsyncCounters):
        return app.children(parent, name)
    return _Awaited(app._subject.children(parent, name), app._threads)


def reference_count(twin, kinds, collection, counter):
    """A reference count made without an app; ``kinds`` are the sync and the async class."""
    documents = twin.client.collection(collection), twin.client.document(counter)
    if twin.name == "async":
        return kinds[1](*documents)
    return _Awaited(kinds[0](*documents), twin._threads)
