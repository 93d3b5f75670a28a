/**
 * A js-libp2p peer that a test drives: one JSON request per line on stdin, one JSON answer per
 * line on stdout. The options of the peer are the first argument, as JSON:
 *
 *   router     "gossipsub" or "floodsub"
 *   protocols  the pubsub protocol ids to speak, best first; the router's own when missing
 *   gossipsub  options of the gossipsub service
 *   kad        whether to be a server of the hash table too, `/ipfs/kad/1.0.0`
 *   network    the content of a private network's key file; an open network when missing
 *   listen     where to listen; on a port of TCP when missing
 *   announce   where it says that it is, beside where it listens
 *   beRelay    whether to be a relay for everybody, without limits
 *   reach      whether to be reached through relays, to punch holes, and to tell who can be dialled
 */
import { createInterface } from 'node:readline'
import { autoNATv2 } from '@libp2p/autonat-v2'
import { circuitRelayServer, circuitRelayTransport } from '@libp2p/circuit-relay-v2'
import { dcutr } from '@libp2p/dcutr'
import { floodsub } from '@libp2p/floodsub'
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { kadDHT, passthroughMapper } from '@libp2p/kad-dht'
import { noise } from '@libp2p/noise'
import { peerIdFromString } from '@libp2p/peer-id'
import { ping } from '@libp2p/ping'
import { preSharedKey } from '@libp2p/pnet'
import { tcp } from '@libp2p/tcp'
import { webSockets } from '@libp2p/websockets'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'
import { CID } from 'multiformats/cid'
import { sha256 } from 'multiformats/hashes/sha2'

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

/** A value under `/pulsarcast/<CID>` hashes to the CID. */
async function contentOnly (key, value) {
  const cid = CID.parse(Buffer.from(key).toString().split('/')[2])
  const digest = await sha256.digest(value)
  if (!Buffer.from(digest.bytes).equals(Buffer.from(cid.multihash.bytes))) {
    throw new Error('the value does not hash to its key')
  }
}

const table = () => kadDHT({
  protocol: '/ipfs/kad/1.0.0',
  clientMode: false,
  // Every peer of these tests is on the loopback, whose addresses are left out by default.
  peerInfoMapper: passthroughMapper,
  validators: { pulsarcast: contentOnly },
  selectors: { pulsarcast: () => 0 }
})

const node = await createLibp2p({
  start: false,
  addresses: {
    listen: options.listen ?? ['/ip4/127.0.0.1/tcp/0'],
    appendAnnounce: options.announce ?? []
  },
  transports: [tcp(), webSockets(), ...(options.reach === true ? [circuitRelayTransport()] : [])],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  connectionMonitor: { enabled: false },
  ...(options.network == null
    ? {}
    : { connectionProtector: preSharedKey({ psk: Buffer.from(options.network) }) }),
  // By default a host may dial five times a second; all peers of a test are one host.
  connectionManager: { inboundConnectionThreshold: 1000 },
  services: {
    identify: identify(),
    ping: ping(),
    pubsub: routers[options.router ?? 'gossipsub'](),
    ...(options.kad === true ? { table: table() } : {}),
    ...(options.beRelay === true ? { relay: circuitRelayServer({ reservations: { applyDefaultLimit: false } }) } : {}),
    ...(options.reach === true ? { autonat: autoNATv2(), dcutr: dcutr() } : {})
  }
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

/** The lowest score that each peer has had. */
const lowest = {}
setInterval(() => {
  for (const peer of pubsub.getPeers()) {
    const score = pubsub.getScore?.(peer.toString()) ?? 0
    lowest[peer.toString()] = Math.min(lowest[peer.toString()] ?? score, score)
  }
}, 100)

/** The pubsub protocols of the open streams to and from a peer. */
function streamsOf (peer) {
  const streams = node.getConnections().flatMap((connection) => connection.streams
    .filter((stream) => connection.remotePeer.toString() === peer)
    .filter((stream) => /\/(meshsub|floodsub)\//.test(stream.protocol)))
  return streams.map(({ direction, protocol }) => ({ direction, protocol }))
}

/** The events of a query of the hash table that have one of the given names. */
async function events (query, ...names) {
  const found = []
  for await (const event of query) {
    if (names.includes(event.name)) {
      found.push(event)
    }
  }
  return found
}

const bytes = (text) => Buffer.from(text, 'base64')

/** A peer as an answer names it. */
const described = ({ id, multiaddrs }) => ({
  id: id.toString(),
  addresses: multiaddrs.map((address) => address.toString())
})

const requests = {
  about: () => ({
    id: node.peerId.toString(),
    tickets: node.getMultiaddrs().map((address) => address.toString())
  }),
  dial: async ({ ticket }) => {
    const connection = await node.dial(multiaddr(ticket), { runOnLimitedConnection: true })
    return { muxer: connection.multiplexer, security: connection.encryption }
  },
  reachable: () => node.components.addressManager.getAddressesWithMetadata()
    .filter((each) => each.verified)
    .map((each) => each.multiaddr.toString())
    .filter((address) => !address.startsWith('/ip4/127.')),
  connections: ({ peer }) => node.getConnections()
    .filter(({ remotePeer }) => remotePeer.toString() === peer)
    .map(({ remoteAddr, limits }) => ({ address: remoteAddr.toString(), limited: limits != null })),
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
  waitForContact: async ({ peer }) => {
    while (await node.services.table.routingTable.find(peerIdFromString(peer)) == null) {
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  },
  putValue: async ({ key, value }) => {
    const query = node.services.table.put(bytes(key), bytes(value))
    const answers = await events(query, 'PEER_RESPONSE', 'QUERY_ERROR')
    return answers
      .filter(({ messageType, error }) => messageType === 'PUT_VALUE' || error != null)
      .map(({ from, error }) => ({ from: from.toString(), error: error?.message ?? null }))
  },
  getValue: async ({ key }) => {
    const values = await events(node.services.table.get(bytes(key)), 'VALUE')
    return values.map(({ value }) => Buffer.from(value).toString('base64'))
  },
  findPeer: async ({ peer }) => {
    const query = node.services.table.findPeer(peerIdFromString(peer))
    return (await events(query, 'FINAL_PEER')).map(({ peer }) => described(peer))
  },
  closestPeers: async ({ key }) => {
    const query = node.services.table.getClosestPeers(bytes(key))
    return (await events(query, 'FINAL_PEER')).map(({ peer }) => described(peer))
  },
  provide: async ({ cid }) => {
    await events(node.services.table.provide(CID.decode(bytes(cid))))
  },
  findProviders: async ({ cid }) => {
    const query = node.services.table.findProviders(CID.decode(bytes(cid)))
    const found = await events(query, 'PROVIDER')
    return found.flatMap(({ providers }) => providers.map(described))
  },
  scores: () => lowest,
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
