'use strict'

// Two nodes of the JavaScript original of Pulsarcast (npm `pulsarcast` 0.2.0) that a test drives:
// one JSON request per line on stdin, one JSON answer per line on stdout. There are two because the
// DHT, in which topics are kept, needs another node; the first one does what is asked.

const { generateKeyPairSync } = require('crypto')
const readline = require('readline')
const DHT = require('libp2p-kad-dht')
const Libp2p = require('libp2p')
const MPLEX = require('libp2p-mplex')
const PeerId = require('peer-id')
const PeerInfo = require('peer-info')
const Pulsarcast = require('pulsarcast')
const SECIO = require('libp2p-secio')
const TCP = require('libp2p-tcp')

// Turns a function whose last argument is a callback into one that returns a promise.
const promised = call => new Promise((resolve, reject) =>
  call((error, ...results) => error ? reject(error) : resolve(results)))

// A new key, made by Node itself: the packages of that time need up to a minute for one.
function createId () {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const der = privateKey.export({ type: 'pkcs1', format: 'der' })
  const length = Buffer.from([der.length & 0x7f | 0x80, der.length >> 7])
  const encoded = Buffer.concat([Buffer.from([0x08, 0x00, 0x12]), length, der])
  return promised(done => PeerId.createFromPrivKey(encoded, done))
}

async function startNode () {
  const [id] = await createId()
  const [peerInfo] = await promised(done => PeerInfo.create(id, done))
  peerInfo.multiaddrs.add('/ip4/127.0.0.1/tcp/0')
  const libp2p = new Libp2p({
    peerInfo,
    modules: { transport: [TCP], streamMuxer: [MPLEX], connEncryption: [SECIO], dht: DHT },
    config: {
      peerDiscovery: { mdns: { enabled: false } },
      dht: { kBucketSize: 20, enabledDiscovery: false },
      EXPERIMENTAL: { dht: true }
    }
  })
  await promised(done => libp2p.start(done))
  const pulsarcast = new Pulsarcast(libp2p)
  await promised(done => pulsarcast.start(done))
  return { libp2p, pulsarcast }
}

const cidOf = node => promised(done => node.getCID(done)).then(([cid]) => cid.toBaseEncodedString())

async function main () {
  const [first, second] = [await startNode(), await startNode()]
  await promised(done => second.libp2p.dial(first.libp2p.peerInfo, done))
  const received = []
  let waiting = []

  const requests = {
    about: () => ({
      id: first.libp2p.peerInfo.id.toB58String(),
      tickets: first.libp2p.peerInfo.multiaddrs.toArray().map(String)
        .filter(address => address.startsWith('/ip4/'))
        .map(address => address.replace('/ipfs/', '/p2p/'))
    }),
    async createTopic ({ name }) {
      const [topic] = await promised(done => first.pulsarcast.createTopic(name, done))
      const cid = await cidOf(topic)
      first.pulsarcast.on(cid, async event => {
        received.push({ cid: await cidOf(event), payload: event.payload.toString('hex') })
        waiting = waiting.filter(each => !each())
      })
      const [block] = await promised(done => topic.serializeCBOR(done))
      return { cid, block: block.toString('hex') }
    },
    async publish ({ topic, payload }) {
      await promised(done => first.pulsarcast.publish(topic, Buffer.from(payload, 'hex'), done))
    },
    children: ({ topic }) => {
      const tree = first.pulsarcast.me.trees.get(topic)
      return tree ? tree.children.map(peer => peer.info.id.toB58String()) : []
    },
    received: ({ count }) => new Promise(resolve => {
      const look = () => received.length >= count && (resolve(received), true)
      look() || waiting.push(look)
    })
  }

  const lines = readline.createInterface({ input: process.stdin })
  lines.on('line', async line => {
    const { id, request, ...parameters } = JSON.parse(line)
    let answer
    try {
      answer = { id, result: (await requests[request](parameters)) || null }
    } catch (error) {
      answer = { id, error: String(error && error.stack) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  })
  lines.on('close', () => process.exit(0))
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
