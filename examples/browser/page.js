/**
 * A web page that is a peer: js-libp2p with GossipSub, over WebSocket, beside any rumormill node.
 *
 * What comes from the network is shown by `textContent` alone, never as HTML, and is bounded: so
 * many messages, so many characters of each. `#join=TICKET&topic=NAME` in the address fills the page.
 */
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { noise } from '@libp2p/noise'
import { webSockets } from '@libp2p/websockets'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

const MOST_MESSAGES = 500
const LONGEST_TEXT = 10_000
const LOOK_INTERVAL = 500
const REDIAL_INTERVAL = 3000

const element = (id) => document.getElementById(id)
const wanted = new URLSearchParams(location.hash.slice(1))
let topic = ''
let ticket = null

/** The specification's message id: the author's id and the sequence number, as rumormill has it. */
function authorAndSeqno ({ from, sequenceNumber }) {
  const author = from.toMultihash().bytes
  const id = new Uint8Array(author.length + 8)
  id.set(author)
  new DataView(id.buffer).setBigUint64(author.length, sequenceNumber)
  return id
}

const node = await createLibp2p({
  transports: [webSockets()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  // By default a page dials no addresses of one's own machine or network, and none without TLS.
  connectionGater: { denyDialMultiaddr: () => false },
  services: {
    identify: identify(),
    pubsub: gossipsub({ allowPublishToZeroTopicPeers: true, msgIdFn: authorAndSeqno })
  }
})
const { pubsub } = node.services
const self = node.peerId.toString()

/** An element with a class and a text. */
function made (tag, kind, text) {
  const found = document.createElement(tag)
  found.className = kind
  found.textContent = text
  return found
}

const shortened = (id) => `${id.slice(0, 8)}…${id.slice(-6)}`

/** The bytes of a message as text; what is no text is shown in hexadecimal digits. */
function readable (data) {
  const text = (() => {
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(data)
    } catch {
      return Array.from(data.slice(0, LONGEST_TEXT / 2), (byte) => byte.toString(16).padStart(2, '0')).join('')
    }
  })()
  return text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text
}

function show (author, data) {
  const list = element('messages')
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40
  const item = made('li', author === self ? 'own' : '', '')
  const head = made('div', 'head', '')
  const who = made('span', 'author', author === self ? 'this page' : shortened(author))
  who.title = author
  head.append(who, made('time', '', new Date().toLocaleTimeString()))
  item.append(head, made('div', 'body', readable(data)))
  list.append(item)
  while (list.children.length > MOST_MESSAGES) {
    list.firstChild.remove()
  }
  if (atEnd) {
    list.scrollTop = list.scrollHeight
  }
}

function complain (problem) {
  element('problem').textContent = problem
  element('problem').hidden = problem === ''
}

/** Subscribe to a topic instead of the one before. */
function follow (name) {
  if (name !== topic) {
    if (topic !== '') {
      pubsub.unsubscribe(topic)
    }
    topic = name
    pubsub.subscribe(topic)
    element('messages').replaceChildren()
  }
  look()
}

/** Connect to a node, and keep to it: when the connection ends, it is dialled again. */
async function join (text) {
  try {
    const address = multiaddr(text)
    await node.dial(address, { signal: AbortSignal.timeout(10_000) })
    ticket = address
    complain('')
  } catch (error) {
    complain(`Not connected: ${error.message}`)
  }
  look()
}

async function redial () {
  if (ticket !== null && node.getConnections().length === 0) {
    await join(ticket.toString())
  }
  setTimeout(redial, REDIAL_INTERVAL)
}

/** What is known of a peer: its program, where it is, and whether it wants the topic. */
async function described (connection, subscribers, mesh) {
  const id = connection.remotePeer.toString()
  const known = await node.peerStore.get(connection.remotePeer).catch(() => null)
  const agent = known?.metadata.get('AgentVersion')
  const role = mesh.includes(id) ? 'in the mesh' : subscribers.includes(id) ? 'subscribes' : 'does not subscribe'
  const item = made('li', '', '')
  const name = made('div', 'id', shortened(id))
  name.title = id
  const program = agent === undefined ? 'not identified yet' : readable(agent).slice(0, 100)
  const where = connection.remoteAddr.toString().split('/p2p/')[0]
  item.append(name, made('div', 'note', `${program}, ${role}`), made('div', 'note', where))
  return item
}

/** Show who is there now. */
async function look () {
  const connections = node.getConnections()
  const subscribers = pubsub.getSubscribers(topic).map(String)
  const mesh = pubsub.getMeshPeers(topic)
  const items = await Promise.all(connections.map((each) => described(each, subscribers, mesh)))
  element('peers').replaceChildren(...items)
  element('peer-count').textContent = connections.length
  const others = subscribers.length === 1 ? '1 peer subscribes' : `${subscribers.length} peers subscribe`
  const state = element('state')
  state.dataset.state = connections.length > 0 ? 'connected' : 'alone'
  state.textContent = connections.length > 0 ? `connected; ${others} to ${topic}` : 'not connected'
}

pubsub.addEventListener('message', ({ detail }) => {
  if (detail.topic === topic) {
    show(detail.from.toString(), detail.data)
  }
})

element('connect-form').addEventListener('submit', (event) => {
  event.preventDefault()
  join(element('ticket').value.trim())
})
element('topic-form').addEventListener('submit', (event) => {
  event.preventDefault()
  follow(element('topic').value)
})
element('publish-form').addEventListener('submit', async (event) => {
  event.preventDefault()
  const text = element('text').value
  const data = new TextEncoder().encode(text)
  try {
    const { recipients } = await pubsub.publish(topic, data)
    show(self, data)
    element('text').value = ''
    complain(recipients.length === 0 ? 'Nobody was there to take the message.' : '')
  } catch (error) {
    complain(`Not published: ${error.message}`)
  }
})

element('self').textContent = self
element('topic').value = wanted.get('topic') ?? 'news'
follow(element('topic').value)
setInterval(look, LOOK_INTERVAL)
if (wanted.has('join')) {
  element('ticket').value = wanted.get('join')
  await join(wanted.get('join'))
}
redial()
