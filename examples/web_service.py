"""A web service over a running node: publish and read by HTTP, with FastAPI.

pip install fastapi uvicorn
rumormill node --home shop
SHOP_HOME=shop uvicorn --app-dir examples web_service:app

curl -X POST localhost:8000/topics/orders -d '{"pieces": 2}' -H 'content-type: application/json'
curl localhost:8000/topics/orders?last=5
curl localhost:8000/groups
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request

from rumormill import LocalError, connect, to_cloudevent


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Use the node for as long as the service runs."""
    async with connect(os.environ.get("SHOP_HOME")) as node:
        app.state.node = node
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/topics/{topic:path}", status_code=201)
async def publish(topic: str, request: Request) -> dict[str, Any]:
    """Publish the body; answer when it is safe."""
    kind = request.headers.get("content-type")
    try:
        receipt = await app.state.node.publish(topic, await request.body(), content_type=kind)
    except LocalError as error:
        raise HTTPException(422, str(error)) from None
    return {"id": receipt.id.hex(), "offset": receipt.offset, "peers": receipt.peers}


@app.get("/topics/{topic:path}")
async def history(topic: str, last: Annotated[int, Query(ge=1)] = 10) -> list[dict[str, Any]]:
    """The last events of a topic, as CloudEvents."""
    try:
        events = await app.state.node.history(topic, since_offset=-last)
    except LocalError as error:
        raise HTTPException(422, str(error)) from None
    return [to_cloudevent(event) for event in events]


@app.get("/groups")
async def groups() -> list[dict[str, Any]]:
    """How far the named subscriptions are."""
    found = await app.state.node.groups()
    return [{"topic": each.topic, "name": each.name, "lag": each.lag} for each in found]
