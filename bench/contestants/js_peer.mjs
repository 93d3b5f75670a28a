/**
 * js-libp2p as a contestant of bench/peers.py: `js_peer.mjs NODES`. The commands are those of
 * stage.py. Scores do not count equal addresses, which on one machine would end every mesh.
 */
import { createInterface } from 'node:readline'
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { noise } from '@libp2p/noise'
import { tcp } from '@libp2p/tcp'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

const SIZE = 1024
const TOPIC = 'bench'
const WINDOW = 64

const seen = []
let publisher = -1
let count = { received: 0, repeated: 0, latencies: [] }

function take (node, data) {
  if (node === publisher) return
  const view = new DataView(data.buffer, data.byteOffset)
  const number = Number(view.getBigUint64(8, true))
  if (seen[node].has(number)) {
    count.repeated++
    return
  }
  seen[node].add(number)
  count.received++
  count.latencies.push(Date.now() / 1000 - view.getFloat64(0, true))
}

async function createNode (number) {
  const node = await createLibp2p({
    addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    connectionMonitor: { enabled: false },
    // By default a host may dial five times a second; here all nodes share one.
    connectionManager: { inboundConnectionThreshold: 1000, maxIncomingPendingConnections: 1000 },
    services: {
      identify: identify(),
      pubsub: gossipsub({
        allowPublishToZeroTopicPeers: true,
        scoreParams: { IPColocationFactorWeight: 0 }
      })
    }
  })
  seen[number] = new Set()
  node.services.pubsub.addEventListener('message', ({ detail }) => take(number, detail.data))
  return node
}

const nodes = await Promise.all(Array.from({ length: Number(process.argv[2]) }, (_, n) => createNode(n)))
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000))

async function publish (node, total, rate) {
  const start = Date.now() / 1000
  let next = 0
  async function work () {
    while (next < total) {
      const number = next++
      const now = Date.now() / 1000
      const due = rate ? start + number / rate : now
      if (due > now) await pause(due - now)
      const data = new Uint8Array(SIZE)
      const view = new DataView(data.buffer)
      view.setFloat64(0, due, true)
      view.setBigUint64(8, BigInt(number), true)
      await nodes[node].services.pubsub.publish(TOPIC, data)
      // A turn of the event loop, so that sockets are served while many are published.
      await new Promise((resolve) => setImmediate(resolve))
    }
  }
  await Promise.all(Array.from({ length: Math.min(WINDOW, total) }, work))
  return { seconds: Date.now() / 1000 - start }
}

const commands = {
  tickets: () => ({ tickets: nodes.map((node) => node.getMultiaddrs()[0].toString()) }),
  connect: async ({ links }) => {
    for (const [node, ticket] of links) await nodes[node].dial(multiaddr(ticket))
  },
  subscribe: ({ nodes: numbers }) => {
    for (const number of numbers) nodes[number].services.pubsub.subscribe(TOPIC)
  },
  ready: async ({ node, peers }) => {
    while (nodes[node].services.pubsub.getSubscribers(TOPIC).length < peers) await pause(0.02)
  },
  publish: ({ node, count: total, rate }) => {
    publisher = node
    return publish(node, total, rate)
  },
  begin: () => {
    count = { received: 0, repeated: 0, latencies: [] }
    for (const numbers of seen) numbers.clear()
  },
  stats: () => {
    const { user, system } = process.cpuUsage()
    const { received, repeated } = count
    return { cpu: (user + system) / 1e6, rss: process.memoryUsage().rss, received, repeated }
  },
  latencies: () => ({ latencies: count.latencies })
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  const answer = (await commands[command.do](command)) ?? {}
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
process.exit(0)
