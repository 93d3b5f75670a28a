/**
 * A js-libp2p peer that a test drives: one JSON request per line on stdin, one JSON answer per
 * line on stdout. The options of the peer are the first argument, as JSON:
 *
 *   router     "gossipsub" or "floodsub"
 *   protocols  the pubsub protocol ids to speak, best first; the router's own when missing
 *   gossipsub  options of the gossipsub service
 */
import { createInterface } from 'node:readline'
import { floodsub } from '@libp2p/floodsub'
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { noise } from '@libp2p/noise'
import { ping } from '@libp2p/ping'
import { tcp } from '@libp2p/tcp'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

const options = JSON.parse(process.argv[2])

/** go's and the specification's message id: the author's id and the sequence number as they are. */
function authorAndSeqno ({ from, sequenceNumber }) {
  const author = from.toMultihash().bytes
  const id = new Uint8Array(author.length + 8)
  id.set(author)
  new DataView(id.buffer).setBigUint64(author.length, sequenceNumber)
  return id
}

const routers = {
  floodsub: () => floodsub(),
  gossipsub: () => gossipsub({
    allowPublishToZeroTopicPeers: true,
    msgIdFn: authorAndSeqno,
    // Every peer of these tests has the same address; by default that alone ends the mesh.
    scoreParams: { IPColocationFactorWeight: 0 },
    ...options.gossipsub
  })
}

const node = await createLibp2p({
  start: false,
  addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  connectionMonitor: { enabled: false },
  services: { identify: identify(), ping: ping(), pubsub: routers[options.router]() }
})
const pubsub = node.services.pubsub
if (options.protocols != null) {
  pubsub.protocols = options.protocols
}

const identified = new Map()
const received = new Map()
const waiting = new Set()

/** Answer every request whose condition has come true. */
function look () {
  for (const request of waiting) {
    if (request.holds()) {
      waiting.delete(request)
      request.resolve()
    }
  }
}

/** Wait until a condition holds; it is looked at whenever anything happens, and now and then. */
async function until (holds) {
  if (!holds()) {
    await new Promise((resolve) => waiting.add({ holds, resolve }))
  }
}

pubsub.addEventListener('message', ({ detail }) => {
  if (!received.has(detail.topic)) {
    received.set(detail.topic, [])
  }
  received.get(detail.topic).push({
    author: detail.from.toString(),
    data: Buffer.from(detail.data).toString('base64')
  })
  look()
})
node.addEventListener('peer:identify', ({ detail }) => {
  identified.set(detail.peerId.toString(), detail)
})
setInterval(look, 20)

/** The pubsub protocols of the open streams to and from a peer. */
function streamsOf (peer) {
  const streams = node.getConnections().flatMap((connection) => connection.streams
    .filter((stream) => connection.remotePeer.toString() === peer)
    .filter((stream) => /\/(meshsub|floodsub)\//.test(stream.protocol)))
  return streams.map(({ direction, protocol }) => ({ direction, protocol }))
}

const requests = {
  about: () => ({
    id: node.peerId.toString(),
    tickets: node.getMultiaddrs().map((address) => address.toString())
  }),
  dial: async ({ ticket }) => {
    const connection = await node.dial(multiaddr(ticket))
    return { muxer: connection.multiplexer, security: connection.encryption }
  },
  subscribe: ({ topic }) => pubsub.subscribe(topic),
  waitForSubscribers: async ({ topic, count }) => {
    await until(() => pubsub.getSubscribers(topic).length >= count)
  },
  publish: async ({ topic, messages }) => {
    let recipients = 0
    for (const message of messages) {
      const result = await pubsub.publish(topic, Buffer.from(message, 'base64'))
      recipients += result.recipients.length
    }
    return { recipients }
  },
  waitForMessages: async ({ topic, count }) => {
    await until(() => (received.get(topic) ?? []).length >= count)
  },
  received: ({ topic }) => received.get(topic) ?? [],
  mesh: ({ topic }) => pubsub.getMeshPeers(topic),
  waitForMesh: async ({ topic, count }) => {
    await until(() => pubsub.getMeshPeers(topic).length >= count)
  },
  streams: ({ peer }) => streamsOf(peer),
  ping: async ({ ticket }) => ({ milliseconds: await node.services.ping.ping(multiaddr(ticket)) }),
  identified: async ({ peer }) => {
    await until(() => identified.has(peer))
    const answer = identified.get(peer)
    return {
      agent: answer.agentVersion,
      listen: answer.listenAddrs.map((address) => address.toString()),
      observed: answer.observedAddr?.toString(),
      protocols: answer.protocols,
      record: answer.signedPeerRecord?.addresses.map((address) => address.toString())
    }
  }
}

/** Carry out one request and answer it; a failure is an answer too. */
async function answer (line) {
  const { id, request, ...parameters } = JSON.parse(line)
  let reply
  try {
    reply = { id, result: (await requests[request](parameters)) ?? null }
  } catch (error) {
    reply = { id, error: `${error.name}: ${error.message}` }
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`)
}

await node.start()
const lines = createInterface({ input: process.stdin })
lines.on('line', answer)
lines.on('close', async () => {
  await node.stop()
  process.exit(0)
})
