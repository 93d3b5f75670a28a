"""A work queue: jobs are published once, and the workers of one name share them.

    rumormill node --home shop                                   # or any program that serves it
    python examples/work_queue.py --home shop work --name ann    # as many of these as you like
    python examples/work_queue.py --home shop add "print 17" "print 18"

A worker acknowledges a job when it has done it. What a worker had that was killed, another gets.
"""

import argparse
import asyncio

import rumormill

JOBS = "examples/jobs"


async def work(node: rumormill.Client, name: str, count: int | None) -> None:
    """Do jobs as they come."""
    done = 0
    async with await node.subscribe(JOBS, name="workers", since_offset=0, auto_ack=False) as jobs:
        print(f"{name} is ready", flush=True)
        async for job in jobs:
            again = " again" if job.via == "again" else ""
            print(f"{name} does{again}: {job.data.decode()}", flush=True)
            await asyncio.sleep(0.01)  # here the work is done
            await jobs.ack(job)
            done += 1
            if done == count:
                return


async def main() -> None:
    """Use the node of a home."""
    parser = argparse.ArgumentParser(description="A work queue.")
    parser.add_argument("--home", required=True)
    verbs = parser.add_subparsers(dest="verb", required=True)
    worker = verbs.add_parser("work")
    worker.add_argument("--name", default="worker")
    worker.add_argument("--count", type=int, help="end after so many jobs")
    verbs.add_parser("add").add_argument("jobs", nargs="+")
    options = parser.parse_args()
    async with rumormill.connect(options.home) as node:
        if options.verb == "work":
            await work(node, options.name, options.count)
            return
        receipts = await node.publish_many(JOBS, options.jobs)
        (queue,) = [each for each in await node.groups() if each.topic == JOBS] or [None]
        waiting = "nobody has worked yet" if queue is None else f"{queue.lag} wait"
        print(f"{len(receipts)} jobs are safe; {waiting}")


asyncio.run(main())
