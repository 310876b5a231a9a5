"""Addresses and ids over REST: any character, any bytes, in the path or by query."""

import base64
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from ringfence_api.app import create_app
from ringfence_client.headers import id_text
from ringfence_service.queries.ids import IdAnswer, IdQuery
from ringfence_service.queries.inbox import QueryInbox
from ringfence_service.queries.registry import Query
from tests.api.fake_service import RUNNING, Clock, make_view, serving


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    address=st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
        # Clients take these for steps in the path; they are asked for by query.
        lambda text: text not in {".", ".."}
    ),
    identifier=st.binary(),
)
def test_what_is_asked_is_what_the_loop_hears(address: str, identifier: bytes) -> None:
    heard: list[Query] = []

    def answer(query: Query) -> IdAnswer:
        heard.append(query)
        return IdAnswer(known=False, sightings=())

    inbox = QueryInbox(depth=4)
    client = TestClient(create_app(make_view(RUNNING, Clock(), inbox, any_host=True)))
    encoded_id = quote(id_text(identifier), safe="") or "hex:"
    if encoded_id in {".", ".."}:
        encoded_id = "hex:" + identifier.hex()
    text_id = "base64:" + base64.b64encode(identifier).decode()
    with serving(inbox, answer):
        client.get(f"/v1/addresses/{quote(address, safe='')}/ids/{encoded_id}").raise_for_status()
        client.get("/v1/ids", params={"address": address, "name": text_id}).raise_for_status()
    assert heard == [IdQuery(address, identifier)] * 2
