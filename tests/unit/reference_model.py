"""The model of ``server_model.py``, with what reference counts ask of a server besides."""

from google.cloud.firestore_v1 import types
from server_model import DATABASE, Server, World, _matching, create_counter

from counters import children, layout, wire

POST = "posts/a91f"
LIKES = "posts/a91f/likes"
COUNTER = "posts/a91f/counters/likes"


class ReferenceServer(Server):
    """Knows COUNT, sums what is a number and passes over the rest; lists missing documents, too."""

    def _run_aggregation_query(self, request):
        aggregation = request.structured_aggregation_query
        (asked,) = aggregation.aggregations
        documents, moment = self._at(request)
        found = _matching(documents, request.parent, aggregation.structured_query)
        if asked.HasField("count"):
            result = len(found)
        else:
            values = (stored.fields.get(asked.sum.field.field_path) for _, stored in found)
            result = sum(value for value in values if isinstance(value, int))
        answer = types.RunAggregationQueryResponse.pb()(read_time=wire.timestamp(moment))
        answer.result.aggregate_fields[asked.alias].CopyFrom(wire.encode(result))
        return [types.RunAggregationQueryResponse.wrap(answer)]

    def _list_documents(self, request):
        within = f"{request.parent}/{request.collection_id}/"[len(f"{DATABASE}/documents/") :]
        inside = (path for path in self.documents if path.startswith(within))
        ids = sorted({path[len(within) :].partition("/")[0] for path in inside})
        rest = [ident for ident in ids if ident > request.page_token]
        page = rest[: request.page_size]
        answer = types.ListDocumentsResponse.pb()(next_page_token=page[-1] if len(rest) > len(page) else "")
        for ident in page:
            answer.documents.add(name=self.name(f"{within}{ident}"))
        return types.ListDocumentsResponse.wrap(answer)


def likes_world(shards=1, **fields):
    """A world with a count of no likes."""
    world = World(ReferenceServer())
    create_counter(world.server, COUNTER, shards=shards, **{layout.CHILDREN: LIKES} | fields)
    return world


def adding(call, user):
    write = wire.create(call.name(f"{LIKES}/{user}"), {})
    return children.add(call, COUNTER, LIKES, write)


def removing(call, user):
    return children.remove(call, COUNTER, LIKES, user)


def likers(world):
    within = f"{LIKES}/"
    return {path[len(within) :] for path in world.server.documents if path.startswith(within)}


def value(world, counter=COUNTER):
    within = f"{counter}/{layout.SHARDS}/"
    documents = world.server.documents.items()
    return sum(stored.fields[layout.VALUE] for path, stored in documents if path.startswith(within))
